"""Metrics from three counts per class: hits, labels and predictions.

h[c] counts the predictions of class c that are right, l[c] those whose label is c, and p[c] those
that predict c. All are computed over an epoch, independent of batches. So are MXNet's F1, Fbeta and
MCC with average="micro", which is `binary` here; its "macro" averages over batches.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, TypeGuard

import numpy as np
from pydantic import ConfigDict, Field

from mxrun.base.regression import Regression
from mxrun.train.classification_metrics import ClassMetricKind, counted
from mxrun.train.metric_kind import METRICS, Metric
from mxrun.train.predictions import (
    Array,
    ClassPredictions,
    LossPredictions,
    NumberPredictions,
    Task,
)

Average = Literal["binary", "macro", "micro"]


class CountKind(ClassMetricKind):
    """Metric that is a function of the three counts."""

    higher_is_better: ClassVar[bool] = True

    @abstractmethod
    def score(self, hits: Array, labels: Array, predictions: Array) -> float:
        """Return the figure from counts by class, float64 [classes]; some are not zero."""

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric over the most probable classes."""
        return Counted(predictions.classes, self)


class AveragedKind(CountKind):
    """Ratio of counts of one class, of all classes together, or averaged over classes."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"average": "macro"}]})
    average: Average = Field(
        default="binary",
        examples=["macro"],
        description="binary: of class 1 of two, or of one mask; macro: the mean over all classes "
        "or masks that occur as label or prediction; micro: of the summed counts of all.",
    )
    name: ClassVar[str]

    @property
    def figure(self) -> str:
        """Name of the figure, such as f1, f1_macro or f1_micro."""
        return self.name if self.average == "binary" else f"{self.name}_{self.average}"

    def why_unsupported(self, task: Task) -> str:
        """Return why the loss cannot be measured; of masks, one or an average is measured."""
        if not _is_of_masks(task):
            return super().why_unsupported(task)
        if self.average != "binary" or task.labels == 1:
            return ""
        return f"has {task.labels} labels, not one: use average macro or micro"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric over the most probable classes, or over probabilities above 0.5."""
        task = predictions.task
        if _is_of_masks(task):
            return CountedMasks(predictions.numbers, task, self)
        return super().create(predictions)

    def _unsupported_classes(self, classes: int) -> str:
        if self.average != "binary" or classes == 2:
            return ""
        found = "1 class" if classes == 1 else f"{classes} classes"
        return f"has {found}, not two: use average macro or micro"

    def score(self, hits: Array, labels: Array, predictions: Array) -> float:
        """Return the ratio with the selected average; a ratio to 0 is 0."""
        counts = (hits, labels, predictions)
        if self.average == "binary":
            return float(self.ratio(*(count[1:2] for count in counts))[0])
        if self.average == "micro":
            return float(self.ratio(*(count.sum(keepdims=True) for count in counts))[0])
        occurring = labels + predictions > 0
        return float(np.mean(self.ratio(*(count[occurring] for count in counts))))

    @abstractmethod
    def ratio(self, hits: Array, labels: Array, predictions: Array) -> Array:
        """Return the ratio of each class."""


@METRICS.register("precision")
class PositivePredictiveValue(AveragedKind):
    """Fraction of the predictions of a class that are right: h / p."""

    name: ClassVar[str] = "precision"

    def ratio(self, hits: Array, labels: Array, predictions: Array) -> Array:
        """Return h / p of each class."""
        return quotient(hits, predictions)


@METRICS.register("recall")
class Sensitivity(AveragedKind):
    """Fraction of the records of a class that are found: h / l."""

    name: ClassVar[str] = "recall"

    def ratio(self, hits: Array, labels: Array, predictions: Array) -> Array:
        """Return h / l of each class."""
        return quotient(hits, labels)


@METRICS.register("f1", foreign={"f1": "f1score binaryf1score multiclassf1score"})
class F1(AveragedKind):
    """Harmonic mean of precision and recall: 2 h / (l + p) of a class."""

    name: ClassVar[str] = "f1"

    def ratio(self, hits: Array, labels: Array, predictions: Array) -> Array:
        """Return 2 h / (l + p) of each class."""
        return quotient(2 * hits, labels + predictions)


@METRICS.register("fbeta", foreign={"fbeta": "fbetascore"})
class FBeta(AveragedKind):
    """Weighted harmonic mean of precision and recall: (1 + b^2) h / (b^2 l + p), b = beta.

    A beta above 1 gives recall more weight, one below 1 precision.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"beta": 0.5, "average": "macro"}]})
    name: ClassVar[str] = "fbeta"

    beta: Annotated[float, Field(gt=0)] = Field(
        default=2.0, examples=[0.5], description="Weight of recall relative to precision."
    )

    def ratio(self, hits: Array, labels: Array, predictions: Array) -> Array:
        """Return (1 + b^2) h / (b^2 l + p) of each class."""
        squared = self.beta**2
        return quotient((1 + squared) * hits, squared * labels + predictions)


@METRICS.register("iou", foreign={"iou": "jaccard jaccardindex meaniou binaryiou miou"})
class IntersectionOverUnion(AveragedKind):
    """Intersection over union (Jaccard index): h / (l + p - h) of a class or a mask.

    For pictures: of pixels, over all records.
    """

    name: ClassVar[str] = "iou"

    def ratio(self, hits: Array, labels: Array, predictions: Array) -> Array:
        """Return h / (l + p - h) of each class."""
        return quotient(hits, labels + predictions - hits)


@METRICS.register("dice", foreign={"dice": "dicescore dicecoefficient f1overlap"})
class Dice(F1):
    """Dice coefficient: 2 h / (l + p) of a class or a mask, the F1 score of pixels."""

    name: ClassVar[str] = "dice"


@METRICS.register("balanced_accuracy")
class BalancedAccuracy(CountKind):
    """Mean of the recalls h / l of all classes that have records: each class counts alike."""

    @property
    def figure(self) -> str:
        """Name of the figure: balanced_accuracy."""
        return "balanced_accuracy"

    def score(self, hits: Array, labels: Array, predictions: Array) -> float:
        """Return the mean recall."""
        return float(np.mean(quotient(hits, labels)[labels > 0]))


@METRICS.register("mcc", foreign={"mcc": "matthewscorrcoef matthews pcc"})
class MatthewsCorrelation(CountKind):
    """Matthews correlation coefficient: of the labels with the predictions, -1 to 1.

    (s h - sum(l p)) / sqrt((s^2 - sum(l^2)) (s^2 - sum(p^2))), where h is the sum of the hits and s
    that of all predictions; 0 if all labels, or all predictions, are of one class. For two classes
    it is MXNet's MCC, for more its PCC (Gorodkin, "Comparing two K-category assignments by a
    K-category correlation coefficient", 2004).
    """

    @property
    def figure(self) -> str:
        """Name of the figure: mcc."""
        return "mcc"

    def score(self, hits: Array, labels: Array, predictions: Array) -> float:
        """Return the correlation."""
        total = labels.sum()
        covariance = total * hits.sum() - labels @ predictions
        spread = (total**2 - labels @ labels) * (total**2 - predictions @ predictions)
        return float(covariance / math.sqrt(spread)) if spread > 0 else 0.0


class Counted(Metric):
    """Function of the counts: totals are [hits, labels, predictions] x classes.

    The figure is NaN if nothing was measured.
    """

    def __init__(self, predictions: ClassPredictions, kind: CountKind) -> None:
        self._predictions, self._kind = predictions, kind
        predictions.request_arrays()
        self.totals = np.zeros((3, predictions.classes))
        self._labels = np.zeros(predictions.count, np.int64)
        self._amounts, self._factors = np.zeros((2, predictions.count))
        self._hits = np.zeros(predictions.count, np.bool_)

    def update(self) -> None:
        """Add the current batch of the predictions."""
        hits, labels, predicted = self.totals
        best = counted(self._predictions, self._labels, self._amounts)
        np.add.at(labels, self._labels, self._amounts)
        np.add.at(predicted, best, self._amounts)
        np.equal(best, self._labels, out=self._hits)
        self._factors[...] = self._hits
        np.multiply(self._amounts, self._factors, out=self._amounts)
        np.add.at(hits, best, self._amounts)

    def value(self) -> float:
        """Return the figure; NaN if nothing was measured."""
        if not np.isfinite(self.totals).all() or not self.totals.any():
            return math.nan
        return self._kind.score(*self.totals)


class CountedMasks(Metric):
    """Function of the counts of masks: totals are [hits, labels, predictions] x masks.

    Labels and outputs are in a mask above 0.5. The figure is NaN if nothing was measured.
    """

    may_warn: ClassVar[bool] = True

    def __init__(self, predictions: NumberPredictions, task: Regression, kind: CountKind) -> None:
        self._predictions, self._kind = predictions, kind
        self._shape = (task.samples, task.labels, task.positions)
        self.totals = np.zeros((3, task.labels))
        self._above = np.zeros((2, predictions.count), np.bool_)
        self._values, self._doubt = np.zeros((2, predictions.count))
        self._sums = np.zeros(task.labels)

    def update(self) -> None:
        """Add the current batch of the predictions."""
        labels, predicted = self._above
        # 0 for numbers, and NaN for an output that is none.
        np.subtract(self._predictions.outputs, self._predictions.outputs, out=self._doubt)
        np.greater(self._predictions.labels, 0.5, out=labels)
        np.greater(self._predictions.outputs, 0.5, out=predicted)
        self._add(1, labels)
        self._add(2, predicted)
        np.logical_and(labels, predicted, out=labels)
        self._add(0, labels)

    def _add(self, row: int, chosen: Array) -> None:
        self._values[...] = chosen
        np.add(self._values, self._doubt, out=self._values)
        self._predictions.leave_out(self._values)
        np.multiply(self._values, self._predictions.weights, out=self._values)
        np.add.reduce(self._values.reshape(self._shape), axis=(0, 2), out=self._sums)
        np.add(self.totals[row], self._sums, out=self.totals[row])

    def value(self) -> float:
        """Return the figure; NaN if nothing was measured."""
        if not np.isfinite(self.totals).all() or not self.totals.any():
            return math.nan
        # In front of the masks stands the rest, which is never counted.
        return self._kind.score(*np.pad(self.totals, ((0, 0), (1, 0))))


def _is_of_masks(task: Task) -> TypeGuard[Regression]:
    """Return whether a loss has probabilities of several labels, or of one in several places."""
    return isinstance(task, Regression) and task.probabilities and not task.is_binary


def quotient(counts: Array, of: Array) -> Array:
    """Return counts / of, and 0 where `of` is 0."""
    return np.divide(counts, of, out=np.zeros(len(counts)), where=of > 0)
