"""Area under the ROC curve, from histograms of the probabilities."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from mxrun.train.class_loop import BEST
from mxrun.train.classification_metrics import ClassMetricKind, counted
from mxrun.train.metric_kind import Metric
from mxrun.train.predictions import Array, ClassPredictions, LossPredictions

# The histograms are part of every checkpoint: 32 KiB for each class.
MAX_AUC_CLASSES = 64
_BINS = 2048
# Range of ln(p / (1 - p)) that the bins cover; float32 probabilities below 1 do not exceed 16.7.
_RANGE = 17.0


class AreaUnderCurve(ClassMetricKind):
    """Area under the ROC curve: the probability that a record of a class ranks above another one.

    (pairs in order + half of the ties) / pairs, over all pairs of a record of the class with one of
    another class, ordered by the probability of the class. Of two classes it is that of class 1, of
    more the mean over the classes that have records and are not alone. Probabilities p are compared
    in 2,048 steps of ln(p / (1 - p)) from -17 to 17, within which they are ties.
    """

    higher_is_better: ClassVar[bool] = True

    @property
    def figure(self) -> str:
        """Name of the figure: auc."""
        return "auc"

    def _unsupported_classes(self, classes: int) -> str:
        if classes <= MAX_AUC_CLASSES:
            return ""
        return f"has {classes} classes; auc supports at most {MAX_AUC_CLASSES}"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric over all probabilities."""
        return RankedPairs(predictions.classes)


class RankedPairs(Metric):
    """AUC: totals are [other classes or own, classes, bins], the weights of the predictions."""

    may_warn: ClassVar[bool] = True

    def __init__(self, predictions: ClassPredictions) -> None:
        self._predictions = predictions
        predictions.request(BEST)
        count, width = predictions.probabilities.shape
        self.totals = np.zeros((2, width, _BINS))
        self._flat = self.totals.reshape(-1)
        self._scores = np.zeros((count, width))
        self._rest = np.zeros((count, width))
        self._bins = np.zeros((count, width), np.int64)
        self._flat_bins, self._first_bins = self._bins.reshape(-1), self._bins[:, 0]
        # As large as the bins: numpy copies an output whose input is broadcast.
        self._offsets = np.tile(np.arange(width) * _BINS, (count, 1))
        self._own = np.arange(count) * width
        self._index = np.zeros(count, np.int64)
        self._labels = np.zeros(count, np.int64)
        self._amounts, self._spread = np.zeros(count), np.zeros((count, width))
        self._column, self._flat_spread = self._amounts[:, np.newaxis], self._spread.reshape(-1)
        self._unknown = np.zeros((count, width), np.bool_)

    def share(self, totals: Array) -> None:
        """Add to these sums from now on."""
        self.totals, self._flat = totals, totals.reshape(-1)

    def update(self) -> None:
        """Add the current batch of the predictions."""
        counted(self._predictions, self._labels, self._amounts)
        scores, rest = self._scores, self._rest
        scores[...] = self._predictions.probabilities
        np.subtract(1, scores, out=rest)
        np.divide(scores, rest, out=scores)
        np.log(scores, out=scores)
        np.maximum(scores, -_RANGE, out=scores)
        np.minimum(scores, _RANGE, out=scores)
        np.add(scores, _RANGE, out=scores)
        np.multiply(scores, (_BINS - 1) / (2 * _RANGE), out=scores)
        # The weight of a prediction that is NaN is NaN, and makes the figure NaN in any bin.
        np.isnan(scores, out=self._unknown)
        np.copyto(scores, 0, where=self._unknown)
        self._bins[...] = scores
        np.add(self._bins, self._offsets, out=self._bins)
        if self._offsets.shape[1] == 1:
            np.multiply(self._labels, _BINS, out=self._labels)
            np.add(self._first_bins, self._labels, out=self._first_bins)
        else:
            np.add(self._own, self._labels, out=self._index)
            # "clip" writes without a buffer; all indices are valid.
            self._flat_bins.take(self._index, out=self._labels, mode="clip")
            np.add(self._labels, self._flat.size // 2, out=self._labels)
            self._flat_bins[self._index] = self._labels
        self._spread[...] = self._column
        np.add.at(self._flat, self._flat_bins, self._flat_spread)

    def value(self) -> float:
        """Return the area; NaN if no class has both records of its own and others."""
        if not np.isfinite(self.totals).all():
            return math.nan
        areas = [_area(*pair) for pair in zip(*self.totals, strict=True)]
        if len(areas) == 2:
            areas = areas[1:]
        known = [area for area in areas if not math.isnan(area)]
        return sum(known) / len(known) if known else math.nan


def _area(others: Array, own: Array) -> float:
    """Return the area under the curve of two histograms [bins]; NaN if one of them is empty."""
    pairs = others.sum() * own.sum()
    if not pairs:
        return math.nan
    below = np.cumsum(others) - others
    return float((own @ below + own @ others / 2) / pairs)
