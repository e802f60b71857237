"""Indexing of arrays: views where the elements are contiguous, else copies.

A basic index consists of integers, slices, None and one Ellipsis. Its result shares the array's
memory if the elements lie one behind the other, as `x[2]`, `x[1:3]` and `x[0, 2:4]` do. As in
MXNet, the result of integers for all axes has shape (1,). Other indices are lists or arrays of
integers, with NumPy's meaning.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import item_size
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.imperative.arrays.array import NDArrayBase

Key = Any


@dataclass(frozen=True)
class IndexRanges:
    """Elements that a basic index selects: a range on each axis of the array.

    key: the index in NumPy's form, whose result is always an array. selected: shape of that result.
    """

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    key: tuple[Any, ...]
    selected: Shape

    @property
    def shape(self) -> Shape:
        """Shape of the array that indexing gives: integers for all axes give one element."""
        return self.selected or (1,)

    def first(self, shape: Shape) -> int | None:
        """Return the index of the first element if all lie one behind the other, else None."""
        block, first, is_partial = 1, 0, False
        for size, start, step, count in reversed(
            list(zip(shape, self.starts, self.steps, self.counts, strict=True))
        ):
            if count > 1 and (is_partial or step != 1):
                return None
            is_partial = is_partial or count != size
            first += start * block
            block *= size
        return first


def is_basic(key: Key) -> bool:
    """Return whether an index consists of integers, slices, None and Ellipsis."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        part is None or part is Ellipsis or isinstance(part, (slice, int, np.integer))
        for part in parts
    )


def select(shape: Shape, key: Key) -> IndexRanges:
    """Return the elements that a basic index selects of an array of this shape.

    Raises IndexError, as NumPy does, if it has too many parts or an integer is out of range.
    """
    parts = _expanded(key if isinstance(key, tuple) else (key,), len(shape))
    starts, steps, counts, result = [], [], [], []
    axis = 0
    for part in parts:
        if part is None:
            result.append(1)
            continue
        size = shape[axis]
        if isinstance(part, slice):
            start, stop, step = part.indices(size)
            count = len(range(start, stop, step))
            result.append(count)
            start = start if count else 0
        else:
            start, step, count = _within(operator.index(part), size, axis), 1, 1
        starts.append(start)
        steps.append(step)
        counts.append(count)
        axis += 1
    # The Ellipsis keeps NumPy from returning a number.
    numpy_key = (*parts, Ellipsis)
    return IndexRanges(tuple(starts), tuple(steps), tuple(counts), numpy_key, tuple(result))


def _expanded(parts: tuple[Any, ...], rank: int) -> list[Any]:
    """Return the parts with full slices in place of the Ellipsis, and behind the last one."""
    given = sum(part is not None and part is not Ellipsis for part in parts)
    if given > rank:
        raise IndexError(f"too many indices: the array has {rank} axes, but {given} were indexed")
    if sum(part is Ellipsis for part in parts) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if not any(part is Ellipsis for part in parts):
        parts = (*parts, Ellipsis)
    place = next(index for index, part in enumerate(parts) if part is Ellipsis)
    full = [slice(None)] * (rank - given)
    return [*parts[:place], *full, *parts[place + 1 :]]


def _within(index: int, size: int, axis: int) -> int:
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    return index + size if index < 0 else index


def offset_of(array: NDArrayBase, first: int) -> int:
    """Return the offset in bytes, within the array's chunk, of an element by its index."""
    return array.offset + first * item_size(array.dtype)


@dataclass(frozen=True)
class GatherKey:
    """Index with arrays of integers: NumPy's index, in which arrays have their places.

    arrays: NDArrays among its parts, by their place; their values are read when the index is used.
    shape: of the result.
    """

    parts: tuple[Any, ...]
    arrays: dict[int, NDArrayBase]
    shape: Shape

    def evaluated(self) -> tuple[Any, ...]:
        """Return NumPy's index, with the present values of the arrays."""
        parts = list(self.parts)
        for place, array in self.arrays.items():
            parts[place] = _integers(values_of(array))
        return tuple(parts)


def gather_key(array: NDArrayBase, key: Key) -> GatherKey:
    """Return an index that has lists or arrays; UserError if NumPy does not accept it."""
    parts: list[Any] = []
    dummies: list[Any] = []
    arrays = {}
    for place, part in enumerate(key if isinstance(key, tuple) else (key,)):
        if isinstance(part, NDArrayBase):
            arrays[place] = part
            parts.append(None)
            dummies.append(np.zeros(part.shape, np.intp))
            continue
        if isinstance(part, (list, np.ndarray)):
            part = _integers(np.asarray(part))
        parts.append(part)
        dummies.append(part)
    pattern = np.broadcast_to(np.int8(0), array.shape)
    shape = np.shape(pattern[tuple(dummies)])
    return GatherKey(tuple(parts), arrays, shape or (1,))


def _integers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return indices as NumPy's integers; MXNet's are often float32."""
    if values.dtype.kind == "b":
        return values
    if values.size and values.dtype.kind not in "iuf":
        raise UserError(Diagnostic("index", expected="integers", got=str(values.dtype)))
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise UserError("an index is not finite")
    return values.astype(np.intp)


def values_of(array: NDArrayBase) -> npt.NDArray[Any]:
    """Return an array's present values for reading, without waiting: for pushed functions."""
    chunk = array.chunk
    return chunk.device.tensor(array.handle, array.spec).values()
