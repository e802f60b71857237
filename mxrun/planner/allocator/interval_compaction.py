"""Placement problem with compacted lifetimes: steps merged into sections of maximal live sets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PlacementProblem:
    """Blocks of `size` bytes, each live in the sections [begin, end) of `sections`.

    life: number of steps that each block is live. A section is an interval of steps whose set of
    live blocks is not contained in that of the interval before or after it: a placement without
    overlap in every section has none at any step. Two blocks are live at the same time if they
    share a section.
    """

    size: Integers
    begin: Integers
    end: Integers
    life: Integers
    sections: int

    @property
    def area(self) -> npt.NDArray[np.float64]:
        """Size times life of each block."""
        return self.size.astype(np.float64) * self.life

    @property
    def totals(self) -> Integers:
        """Live bytes in each section."""
        change = np.zeros(self.sections + 1, np.int64)
        np.add.at(change, self.begin, self.size)
        np.add.at(change, self.end, -self.size)
        return np.cumsum(change)[:-1]

    @property
    def fullest(self) -> Integers:
        """For each block, the maximum of the live bytes over its sections."""
        # `reduceat` needs valid indices, and the last lifetime ends one past the last section.
        totals = np.append(self.totals, 0)
        lives = np.stack((self.begin, self.end), axis=1).ravel()
        fullest: Integers = np.maximum.reduceat(totals, lives)[::2]
        return fullest

    @property
    def rows(self) -> int:
        """Number of (section, block) pairs with the block live in the section."""
        return int((self.end - self.begin).sum())

    @property
    def lower_bound(self) -> int:
        """Lower bound on the size of the arena in bytes: the maximum of the live bytes."""
        return int(self.totals.max(initial=0))


def compact_lifetimes(size: Integers, first: Integers, last: Integers) -> PlacementProblem:
    """Return the problem of blocks live during [first, last), none of them empty."""
    # Without `return_counts` NumPy imports numpy.ma to look for a mask, which takes 20 ms.
    moments, _ = np.unique(np.concatenate((first, last)), return_counts=True)
    starts = np.isin(moments, first)
    ends = np.isin(moments, last)
    # The live set is maximal between a moment that starts a block and a next moment that ends one.
    full = starts[:-1] & ends[1:]
    number = np.concatenate(([0], np.cumsum(full)))
    begin = number[np.searchsorted(moments, first)]
    end = number[np.searchsorted(moments, last)]
    return PlacementProblem(
        size=size, begin=begin, end=end, life=last - first, sections=int(number[-1])
    )
