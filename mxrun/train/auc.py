"""Area under the ROC curve, by the ranks of the probabilities."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from mxrun.train.classification_metrics import ClassMetricKind, counted
from mxrun.train.metric_kind import METRICS, Metric
from mxrun.train.predictions import ClassPredictions, LossPredictions
from mxrun.train.ranked_groups import RankedGroups

# Memory grows with their number: 32 bytes for each prediction and class, or 256 KB for each class
# in a checkpoint.
MAX_AUC_CLASSES = 64
# Numbers of predictions up to which the area is exact. The groups of training are part of its
# checkpoints, so that they are few.
EXACT = 1_000_000
EXACT_IN_TRAINING = 6000


@METRICS.register("auc", foreign={"auc": "auroc rocauc rocaucscore"})
class AreaUnderCurve(ClassMetricKind):
    """Area under the ROC curve: the probability that a record of a class ranks above another one.

    (pairs in order + half of the ties) / pairs, over all pairs of a record of the class with one of
    another class, ordered by the probability of the class. Of two classes it is that of class 1, of
    more the mean over the classes that have records and are not alone. If there is no such class,
    as in an evaluation whose records are all of one class, it is undefined: NaN. Evaluations are
    exact up to 1,000,000 predictions; of more, those of similar probability are merged into groups
    of a few, within which they are ties: an error of about 0.00001. Training's own figure is exact
    up to 6,000 predictions in an epoch, and then an estimate from at most 8,000 groups: within
    about 0.001 if the records are in random order. `mxrun evaluate --split train` gives the exact
    one.
    """

    higher_is_better: ClassVar[bool] = True
    adds_up: ClassVar[bool] = False
    undefined: ClassVar[str] = "if all labels are of one class"

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
        return RankedPairs(predictions.classes, predictions.is_saved)


class RankedPairs(Metric):
    """AUC: totals are the columns of `RankedGroups`, of class 1 of two or of each of more classes.

    is_saved: whether checkpoints hold the totals, which then have a fixed, small size.
    """

    may_warn: ClassVar[bool] = True

    def __init__(self, predictions: ClassPredictions, is_saved: bool) -> None:
        self._predictions = predictions
        predictions.request_arrays(probabilities=True)
        count, width = predictions.count, predictions.width
        classes = np.arange(width) if width > 2 else np.array([1])
        exact = EXACT_IN_TRAINING if is_saved else EXACT
        self._groups = RankedGroups(len(classes), exact, is_fixed=is_saved)
        self.totals = self._groups.columns
        self._ranked = slice(0, None) if width > 2 else slice(width - 1, width)
        # As large as the labels: numpy copies an input that is broadcast.
        self._classes = np.tile(classes[:, np.newaxis], (1, count))
        self._labels, self._amounts = np.zeros(count, np.int64), np.zeros(count)
        self._label_of_each = np.zeros_like(self._classes)
        self._is_own = np.zeros(self._classes.shape, np.bool_)
        self._own, self._weights = (np.zeros(self._classes.shape) for _ in range(2))

    def reset(self) -> None:
        """Reset the sums."""
        self._groups.columns.fill(0)

    def share(self, other: Metric) -> None:
        """Add to another metric's sums from now on."""
        assert isinstance(other, RankedPairs)
        self._groups = other._groups
        self.totals = self._groups.columns

    def update(self) -> None:
        """Add the current batch of the predictions."""
        counted(self._predictions, self._labels, self._amounts)
        self._label_of_each[...], self._weights[...] = self._labels, self._amounts
        np.equal(self._label_of_each, self._classes, out=self._is_own)
        self._own[...] = self._is_own
        np.multiply(self._own, self._weights, out=self._own)
        scores = self._predictions.probabilities.T[self._ranked]
        self._groups.add(scores, self._own, self._weights)
        self.totals = self._groups.columns

    def value(self) -> float:
        """Return the area; NaN if no class has both records of its own and others."""
        known = [area for area in self._groups.areas() if not math.isnan(area)]
        return sum(known) / len(known) if known else math.nan
