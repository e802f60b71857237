"""Metrics from three counts per class: hits, labels and predictions.

h[c] counts the predictions of class c that are right, l[c] those whose label is c, and p[c] those
that predict c. All are computed over an epoch, independent of batches. So are MXNet's F1, Fbeta and
MCC with average="micro", which is `binary` here; its "macro" averages over batches.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field

from mxrun.train.classification_metrics import ClassMetricKind, counted
from mxrun.train.metric_kind import METRICS, Metric
from mxrun.train.predictions import Array, ClassPredictions, LossPredictions

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
        description="binary: of class 1 of two; macro: the mean over all classes that occur as "
        "label or prediction; micro: of the summed counts of all classes.",
    )
    name: ClassVar[str]

    @property
    def figure(self) -> str:
        """Name of the figure, such as f1, f1_macro or f1_micro."""
        return self.name if self.average == "binary" else f"{self.name}_{self.average}"

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


def quotient(counts: Array, of: Array) -> Array:
    """Return counts / of, and 0 where `of` is 0."""
    return np.divide(counts, of, out=np.zeros(len(counts)), where=of > 0)
