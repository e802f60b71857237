"""Lifetimes as sections of time: what an allocation depends on, whatever the steps are called."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PlacementProblem:
    """Blocks of `size` bytes, each alive in the sections [begin, end) of `sections`.

    life: the steps that each is alive. A section is a stretch of time whose living blocks are not
    all alive in the stretch before or behind it: what fits in every section fits at every step. Two
    blocks are alive together where they share a section.
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
        """Bytes alive in each section."""
        change = np.zeros(self.sections + 1, np.int64)
        np.add.at(change, self.begin, self.size)
        np.add.at(change, self.end, -self.size)
        return np.cumsum(change)[:-1]

    @property
    def fullest(self) -> Integers:
        """For each block the bytes of the fullest section that it is alive in."""
        # The last life ends where the sections do, which must be a place among what is reduced.
        totals = np.append(self.totals, 0)
        lives = np.stack((self.begin, self.end), axis=1).ravel()
        fullest: Integers = np.maximum.reduceat(totals, lives)[::2]
        return fullest

    @property
    def rows(self) -> int:
        """The blocks of every section, counted in each."""
        return int((self.end - self.begin).sum())

    @property
    def lower_bound(self) -> int:
        """The largest sum of sizes alive at once, in bytes: no arena can be smaller."""
        return int(self.totals.max(initial=0))


def sectioned(size: Integers, first: Integers, last: Integers) -> PlacementProblem:
    """The problem of blocks alive during [first, last), none of them empty."""
    # Without the counts NumPy would import its masked arrays to look for one, which takes 20 ms.
    moments, _ = np.unique(np.concatenate((first, last)), return_counts=True)
    starts = np.isin(moments, first)
    ends = np.isin(moments, last)
    # Between two moments of which the earlier starts something and the later ends something, more
    # is alive than on both sides.
    full = starts[:-1] & ends[1:]
    number = np.concatenate(([0], np.cumsum(full)))
    begin = number[np.searchsorted(moments, first)]
    end = number[np.searchsorted(moments, last)]
    return PlacementProblem(size, begin, end, last - first, int(number[-1]))
