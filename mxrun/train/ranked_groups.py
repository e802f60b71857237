"""Scores of predictions in groups, ranked for the area under the ROC curve.

A group is a column of four numbers: the lowest and the highest of its scores, the weight of its
predictions of a class, and that of the others. Groups of one score each give the exact area.
"""

from __future__ import annotations

import math

import numpy as np

from mxrun.train.predictions import Array

_INITIAL_ROOM = 8000


class RankedGroups:
    """Groups of scores, for each of several classes; predictions are added and never removed.

    Up to `exact` different scores are ranked as they are. Beyond, neighbours are merged into groups
    of similar weight, at most 2/3 of `exact` of them, whenever there is no room for more. All
    additions in the same order give the same bits.

    columns: float64 [classes, 4, 1 + room]; the first column holds the number of used ones. If
    `is_fixed`, the room is 4/3 of `exact` from the beginning, so that the array never changes its
    shape; else it grows up to that.
    """

    def __init__(self, classes: int, exact: int, is_fixed: bool) -> None:
        self._exact = exact
        self._max_room = exact + exact // 3
        room = self._max_room if is_fixed else min(_INITIAL_ROOM, self._max_room)
        self.columns: Array = np.zeros((classes, 4, 1 + room))

    @property
    def _used(self) -> int:
        return int(self.columns[0, 0, 0])

    def add(self, scores: Array, own: Array, weights: Array) -> None:
        """Add predictions: scores and weights of the class and of all, each [classes, count]."""
        begin, count = 0, scores.shape[1]
        while begin < count:
            first = 1 + self._used
            if first == self.columns.shape[2]:
                self._make_room()
                continue
            taken = min(count - begin, self.columns.shape[2] - first)
            part, given = slice(first, first + taken), slice(begin, begin + taken)
            self.columns[:, 0, part] = self.columns[:, 1, part] = scores[:, given]
            self.columns[:, 2, part] = own[:, given]
            np.subtract(weights[:, given], own[:, given], out=self.columns[:, 3, part])
            self.columns[:, 0, 0] += taken
            begin += taken

    def areas(self) -> list[float]:
        """Return the area under the curve of each class; NaN without predictions on both sides."""
        return [_area(_distinct(groups)) for groups in self._groups()]

    def _groups(self) -> list[Array]:
        return list(self.columns[:, :, 1 : 1 + self._used])

    def _make_room(self) -> None:
        """Use more memory, if there may be more; else sort and merge."""
        classes, rows, size = self.columns.shape
        if size <= self._max_room:
            grown = np.zeros((classes, rows, 1 + min(2 * size, self._max_room)))
            grown[:, :, :size] = self.columns
            self.columns = grown
            return
        ranked = [_distinct(groups) for groups in self._groups()]
        ranked = [
            _merged(groups, self._exact * 2 // 3) if groups.shape[1] > self._exact else groups
            for groups in ranked
        ]
        self.columns.fill(0)
        for columns, groups in zip(self.columns, ranked, strict=True):
            columns[:, 1 : 1 + groups.shape[1]] = groups
        # Columns of weight 0, which a class with fewer groups has, count as none.
        self.columns[:, 0, 0] = max(groups.shape[1] for groups in ranked)


def _distinct(groups: Array) -> Array:
    """Return groups in ascending order, those of the same scores as one, without those of weight 0.

    If a weight is NaN, a single group of this weight remains.
    """
    if np.isnan(groups[2:].sum()):
        return np.array([[0.0], [0.0], [math.nan], [math.nan]])
    groups = groups[:, groups[2] + groups[3] > 0]
    groups = groups[:, np.lexsort((groups[1], groups[0]))]
    return _joined(groups, (np.diff(groups[:2]) != 0).any(0))


def _merged(groups: Array, count: int) -> Array:
    """Return at most `count` groups: neighbours merged up to a limit of their weight.

    What is at least as heavy as the limit remains as it is.
    """
    weights = groups[2] + groups[3]
    ends = np.cumsum(weights)
    limit = 3 * ends[-1] / count
    cells, heavy = np.floor((ends - weights) / limit), weights >= limit
    return _joined(groups, (cells[1:] != cells[:-1]) | heavy[1:] | heavy[:-1])


def _joined(groups: Array, begins: Array) -> Array:
    """Return groups joined with the one before wherever `begins`, [groups - 1], is false."""
    if not groups.shape[1]:
        return groups
    first = np.concatenate([[0], 1 + np.flatnonzero(begins)])
    highest = np.maximum.reduceat(groups[1], first)
    weights = (np.add.reduceat(row, first) for row in groups[2:])
    return np.stack([groups[0, first], highest, *weights])


def _area(groups: Array) -> float:
    """Return the area of groups in ascending order; pairs of overlapping groups count half."""
    lowest, highest, own, others = groups
    pairs = own.sum() * others.sum()
    if not pairs > 0:
        return math.nan
    order = np.argsort(highest, kind="stable")
    below = np.searchsorted(highest[order], lowest, "left")
    not_above = np.searchsorted(lowest, highest, "right")
    certain = np.concatenate([[0], np.cumsum(others[order])])[below]
    possible = np.concatenate([[0], np.cumsum(others)])[not_above]
    return float(own @ (certain + possible) / 2 / pairs)
