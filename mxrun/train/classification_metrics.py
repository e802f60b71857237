"""Metrics of predictions among classes, with MXNet's formulas where MXNet 1.9.1 has the metric.

Every one is over all predictions of an epoch, however these are split into batches. MXNet's F1 is
too with its average="micro", which is `binary` here; its "macro" averages over batches.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from mxrun.base.classification import Classification
from mxrun.base.params import Int32
from mxrun.train.class_loop import BEST, LIMITED_LOG, LOG
from mxrun.train.metric_kind import Figure, MeanOfValues, Metric, MetricKind, SummedMean
from mxrun.train.predictions import Array, ClassPredictions, LossPredictions, Seen

# A confusion matrix of more classes would be millions of numbers in every line of a record.
MAX_CLASSES = 256


class ClassMetricKind(MetricKind):
    """A metric of predictions among classes."""

    # Whether it reads more than the class that is predicted and the probability of the label.
    needs_distribution: ClassVar[bool] = False

    def unfit(self, seen: Seen) -> str:
        """Why not; it needs one label for each prediction."""
        if seen is None:
            return "has no labels to compare predictions with"
        if isinstance(seen, Classification):
            if not seen.labelled:
                return "has labels that do not name one class for each prediction"
            return self._unfit_classes(seen.classes)
        if not seen.is_binary:
            return "predicts numbers, not classes"
        if self.needs_distribution:
            return "gives one probability, not one for each class"
        return self._unfit_classes(2)

    def _unfit_classes(self, classes: int) -> str:
        """Why so many classes are not what it measures."""
        return ""


class Accuracy(ClassMetricKind):
    """The share of predictions whose most probable class is the label, the first among equals;
    of a single probability, the class 1 above 0.5.
    """

    higher_is_better: ClassVar[bool] = True

    @property
    def figure(self) -> str:
        """accuracy."""
        return "accuracy"

    def create(self, predictions: LossPredictions) -> Metric:
        """Sums over the most probable classes."""
        return SummedMean(predictions.classes, BEST)


class TopK(ClassMetricKind):
    """The share of predictions whose label is among the k most probable classes; of equally
    probable ones the first come first.
    """

    higher_is_better: ClassVar[bool] = True
    needs_distribution: ClassVar[bool] = True

    k: Annotated[Int32, Field(ge=1)] = Field(
        default=5, examples=[3], description="How many classes may be guessed."
    )

    @property
    def figure(self) -> str:
        """top_5_accuracy for k = 5."""
        return f"top_{self.k}_accuracy"

    def _unfit_classes(self, classes: int) -> str:
        return f"tells {classes} classes apart, less than k = {self.k}" if classes < self.k else ""

    def create(self, predictions: LossPredictions) -> Metric:
        """Sums over all probabilities."""
        return MeanTopK(predictions.classes, self.k)


class CrossEntropy(ClassMetricKind):
    """The mean of -ln(probability of the label + 1e-12)."""

    @property
    def figure(self) -> str:
        """cross_entropy."""
        return "cross_entropy"

    def create(self, predictions: LossPredictions) -> Metric:
        """Sums over the labels' probabilities."""
        return MeanCrossEntropy(predictions.classes)


class Perplexity(ClassMetricKind):
    """exp of the mean of -ln(max(probability of the label, 1e-10)); labels that the loss ignores
    do not count.
    """

    @property
    def figure(self) -> str:
        """perplexity."""
        return "perplexity"

    def create(self, predictions: LossPredictions) -> Metric:
        """Sums over the labels' probabilities."""
        return ExponentialMean(predictions.classes)


class F1(ClassMetricKind):
    """The harmonic mean of precision and recall: 2 hits / (labels + predictions) of a class."""

    higher_is_better: ClassVar[bool] = True

    average: Literal["binary", "macro", "micro"] = Field(
        default="binary",
        examples=["macro"],
        description="binary: of class 1 of two; macro: the mean over all classes that are labels "
        "or predicted; micro: of all classes counted together.",
    )

    @property
    def figure(self) -> str:
        """f1, f1_macro or f1_micro."""
        return "f1" if self.average == "binary" else f"f1_{self.average}"

    def _unfit_classes(self, classes: int) -> str:
        if self.average != "binary" or classes == 2:
            return ""
        return f"tells {classes} classes apart, not two: average macro or micro measures them"

    def create(self, predictions: LossPredictions) -> Metric:
        """Sums over the most probable classes."""
        return CountedF1(predictions.classes, self.average)


class ConfusionMatrix(ClassMetricKind):
    """How often which class (row) was predicted as which (column): a table, no single number."""

    is_table: ClassVar[bool] = True

    @property
    def figure(self) -> str:
        """confusion_matrix."""
        return "confusion_matrix"

    def _unfit_classes(self, classes: int) -> str:
        if classes <= MAX_CLASSES:
            return ""
        return f"tells {classes} classes apart; a table has at most {MAX_CLASSES}"

    def create(self, predictions: LossPredictions) -> Metric:
        """Sums over the most probable classes."""
        return CountedPairs(predictions.classes)


class MeanTopK(MeanOfValues):
    """Finds the largest, takes it out, and so on k times."""

    def __init__(self, predictions: ClassPredictions, k: int) -> None:
        super().__init__(predictions)
        predictions.want(BEST)
        self._predictions, self._k = predictions, k
        self._left = np.zeros_like(predictions.probabilities)
        self._best = np.zeros_like(predictions.labels)
        self._hits = np.zeros(len(predictions.labels), np.bool_)
        self._factors = np.zeros(len(predictions.labels))

    def _measure(self) -> None:
        self._left[...] = self._predictions.probabilities
        self._values[...] = self._predictions.doubt
        for _ in range(self._k):
            self._left.argmax(1, self._best)
            np.equal(self._best, self._predictions.labels, out=self._hits)
            self._factors[...] = self._hits
            np.add(self._values, self._factors, out=self._values)
            self._left.put(self._predictions.places(self._best), -np.inf)


class MeanCrossEntropy(SummedMean):
    """Sums logarithms."""

    def __init__(self, predictions: ClassPredictions) -> None:
        super().__init__(predictions, LOG)

    def value(self) -> float:
        """The mean over everything since the last reset; NaN if that is nothing."""
        return -super().value()


class ExponentialMean(SummedMean):
    """Sums logarithms, of which it gives the exponential."""

    def __init__(self, predictions: ClassPredictions) -> None:
        super().__init__(predictions, LIMITED_LOG)

    def value(self) -> float:
        """exp of minus the mean; NaN if nothing was measured."""
        return math.exp(-super().value())


class CountedF1(Metric):
    """Counts for each class: totals are [hits, labels, predictions] x classes.

    Nothing measured is NaN; a class without hits has 0.
    """

    def __init__(self, predictions: ClassPredictions, average: str) -> None:
        self._predictions, self._average = predictions, average
        predictions.want(BEST)
        self.totals = np.zeros((3, predictions.classes))
        self._labels = np.zeros_like(predictions.labels)
        self._amounts, self._factors = np.zeros((2, len(predictions.labels)))
        self._hits = np.zeros(len(predictions.labels), np.bool_)

    def update(self) -> None:
        """Add the batch that the predictions hold."""
        hits, labels, predicted = self.totals
        best = _counted(self._predictions, self._labels, self._amounts)
        np.add.at(labels, self._labels, self._amounts)
        np.add.at(predicted, best, self._amounts)
        np.equal(best, self._labels, out=self._hits)
        self._factors[...] = self._hits
        np.multiply(self._amounts, self._factors, out=self._amounts)
        np.add.at(hits, best, self._amounts)

    def value(self) -> float:
        """F1 by the average of its kind; NaN if nothing was measured."""
        hits, labels, predicted = self.totals
        sizes = labels + predicted
        if not np.isfinite(self.totals).all() or not sizes.any():
            return math.nan
        if self._average == "binary":
            return float(2 * hits[1] / sizes[1]) if sizes[1] else 0.0
        if self._average == "micro":
            return float(2 * hits.sum() / sizes.sum())
        return float(np.mean(2 * hits[sizes > 0] / sizes[sizes > 0]))


class CountedPairs(Metric):
    """Counts predictions: totals are [classes, classes], labels by predicted classes."""

    def __init__(self, predictions: ClassPredictions) -> None:
        self._predictions = predictions
        predictions.want(BEST)
        self.totals = np.zeros((predictions.classes, predictions.classes))
        self._flat = self.totals.reshape(-1)
        self._index = np.zeros_like(predictions.labels)
        self._amounts = np.zeros(len(predictions.labels))

    def update(self) -> None:
        """Add the batch that the predictions hold."""
        best = _counted(self._predictions, self._index, self._amounts)
        np.multiply(self._index, self._predictions.classes, out=self._index)
        np.add(self._index, best, out=self._index)
        np.add.at(self._flat, self._index, self._amounts)

    def value(self) -> Figure:
        """Rows of counts, whole numbers as integers."""
        return [
            [int(count) if count.is_integer() else count for count in row]
            for row in self.totals.tolist()
        ]


def _counted(predictions: ClassPredictions, labels: Array, amounts: Array) -> Array:
    """The predicted classes; the labels, all within the classes, and how much each prediction
    counts are written: 0 where it does not, NaN where it is no number.
    """
    np.maximum(predictions.labels, 0, out=labels)
    np.minimum(labels, predictions.classes - 1, out=labels)
    np.add(predictions.weights, predictions.doubt, out=amounts)
    predictions.leave_out(amounts)
    return predictions.best
