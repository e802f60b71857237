"""Fixed binary tree in which the gradients of batch parts are summed.

Neighbours are added first, then sums of two, of four, ...: ((p0 + p1) + (p2 + p3)) + ... Parts come
one after the other; the sum of 2^k parts, complete before its neighbour, waits at level k. An
aligned run of 2^k parts is a branch of the tree, so that whoever computes it may add it up first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass


@dataclass(frozen=True)
class FoldStep:
    """Additions that follow a part: the waiting sums at `levels` are added to it, in their order.

    target: level at which the result waits; None after the last part, whose result is the sum.
    """

    levels: tuple[int, ...]
    target: int | None


def fold_step(part: int, parts: int) -> FoldStep:
    """Return the additions after part number `part` of `parts`."""
    waiting = [level for level in range(part.bit_length()) if part >> level & 1]
    if part == parts - 1:
        return FoldStep(tuple(waiting), None)
    ones = (~part & part + 1).bit_length() - 1
    return FoldStep(tuple(waiting[:ones]), ones)


def partial_sums(parts: int) -> int:
    """Return the number of levels at which sums wait."""
    return (parts - 1).bit_length()


def tree_sum(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the sum of arrays of equal size in the order of the tree, in the last one's memory.

    The others are overwritten too.
    """
    waiting: dict[int, NDArray[Any]] = {}
    for part, array in enumerate(arrays):
        step = fold_step(part, len(arrays))
        for level in step.levels:
            np.add(waiting[level], array, out=array)
        if step.target is not None:
            waiting[step.target] = array
    return arrays[-1]
