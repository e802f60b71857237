"""Classification metrics, with MXNet's formulas where MXNet 1.9.1 has the metric.

Each is computed over all predictions of an epoch, independent of batches.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from mxrun.base.classification import Classification, Likelihood
from mxrun.base.params import Int32
from mxrun.train.metric_kind import (
    CROSS_ENTROPY,
    METRICS,
    Figure,
    MeanOfValues,
    Metric,
    MetricKind,
    SummedMean,
)
from mxrun.train.predictions import (
    BEST,
    LIMITED_LOG,
    LOG,
    Array,
    ClassPredictions,
    LossPredictions,
    Task,
)

# A confusion matrix of more classes would write millions of numbers into every line of metrics.
MAX_CLASSES = 256


class ClassMetricKind(MetricKind):
    """Metric of predicted classes."""

    # Whether it needs all probabilities, not only the predicted class and the label's probability.
    needs_distribution: ClassVar[bool] = False
    # Whether it follows from the mean loss, if that is a cross-entropy.
    follows_from_loss: ClassVar[bool] = False

    def why_unsupported(self, task: Task) -> str:
        """Return why the loss cannot be measured; a class metric needs one label per prediction."""
        if task is None:
            return "has no labels to compare predictions with"
        if isinstance(task, Likelihood):
            return "" if self.follows_from_loss else "gives its loss alone, and no predictions"
        if isinstance(task, Classification):
            if not task.labelled:
                return "has labels that do not name one class for each prediction"
            return self._unsupported_classes(task.classes)
        if not task.is_binary:
            return "predicts numbers, not classes"
        if self.needs_distribution:
            return "has one probability, not one for each class"
        return self._unsupported_classes(2)

    def _unsupported_classes(self, classes: int) -> str:
        """Return why this number of classes is not supported, or an empty string."""
        return ""


@METRICS.register(
    "accuracy",
    foreign={"accuracy": "acc categoricalaccuracy sparsecategoricalaccuracy multiclassaccuracy"},
)
class Accuracy(ClassMetricKind):
    """Fraction of predictions whose most probable class is the label.

    The first of equally probable classes counts. Of a single probability, class 1 is predicted
    above 0.5.
    """

    higher_is_better: ClassVar[bool] = True

    @property
    def figure(self) -> str:
        """Name of the figure: accuracy."""
        return "accuracy"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric over the most probable classes."""
        return SummedMean(predictions.classes, BEST)


@METRICS.register(
    "top_k",
    foreign={
        "{top_k: {k: 5}}": "top5 top5accuracy topkaccuracy topkcategoricalaccuracy "
        "sparsetopkcategoricalaccuracy"
    },
)
class TopK(ClassMetricKind):
    """Fraction of predictions whose label is among the k most probable classes.

    Equally probable classes are ranked by their numbers, ascending.
    """

    higher_is_better: ClassVar[bool] = True
    needs_distribution: ClassVar[bool] = True

    k: Annotated[Int32, Field(ge=1)] = Field(
        default=5,
        examples=[3],
        description="Number of most probable classes among which the label counts as a hit.",
    )

    @property
    def figure(self) -> str:
        """Name of the figure: top_5_accuracy for k = 5."""
        return f"top_{self.k}_accuracy"

    def _unsupported_classes(self, classes: int) -> str:
        several = f"{classes} class{'' if classes == 1 else 'es'}"
        return f"has {several}, less than k = {self.k}" if classes < self.k else ""

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric over all probabilities."""
        return MeanTopK(predictions.classes, self.k)


@METRICS.register(
    "cross_entropy",
    foreign={
        "cross_entropy": "crossentropyloss categoricalcrossentropy "
        "sparsecategoricalcrossentropy logloss nll negativeloglikelihood ce"
    },
)
class CrossEntropy(ClassMetricKind):
    """Mean of -ln(probability of the label + 1e-12)."""

    follows_from_loss: ClassVar[bool] = True

    @property
    def figure(self) -> str:
        """Name of the figure: cross_entropy."""
        return CROSS_ENTROPY

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric over the labels' probabilities."""
        return MeanCrossEntropy(predictions.classes)

    def of_mean(self, loss: float) -> float:
        """Return the mean loss."""
        return loss


@METRICS.register("bits_per_character")
class BitsPerCharacter(ClassMetricKind):
    """Mean of -log2(probability of the label + 1e-12).

    Of a text whose tokens are characters or bytes these are the bits that a character or byte takes
    when the network compresses the text; of other tokens, bits per token. Labels that the loss
    ignores do not count.
    """

    follows_from_loss: ClassVar[bool] = True

    @property
    def figure(self) -> str:
        """Name of the figure: bits_per_character."""
        return "bits_per_character"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric over the labels' probabilities."""
        return MeanCrossEntropy(predictions.classes, unit=math.log(2))

    def of_mean(self, loss: float) -> float:
        """Return the mean loss in bits."""
        return loss / math.log(2)


@METRICS.register("perplexity")
class Perplexity(ClassMetricKind):
    """Exponential of the mean of -ln(max(probability of the label, 1e-10)).

    Labels that the loss ignores do not count. Of a loss that stores no probabilities, such as
    softmax_cross_entropy, it is the exponential of the mean loss.
    """

    follows_from_loss: ClassVar[bool] = True

    @property
    def figure(self) -> str:
        """Name of the figure: perplexity."""
        return "perplexity"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric over the labels' probabilities."""
        return ExponentialMean(predictions.classes)

    def of_mean(self, loss: float) -> float:
        """Return the exponential of the mean loss; infinity if that exceeds a float."""
        try:
            return math.exp(loss)
        except OverflowError:
            return math.inf


@METRICS.register(
    "confusion_matrix", foreign={"confusion_matrix": "confusion multiclassconfusionmatrix"}
)
class ConfusionMatrix(ClassMetricKind):
    """Number of predictions by label (row) and predicted class (column): a table, not a number."""

    is_table: ClassVar[bool] = True

    @property
    def figure(self) -> str:
        """Name of the figure: confusion_matrix."""
        return "confusion_matrix"

    def _unsupported_classes(self, classes: int) -> str:
        if classes <= MAX_CLASSES:
            return ""
        return f"has {classes} classes; a table supports at most {MAX_CLASSES}"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric over the most probable classes."""
        return CountedPairs(predictions.classes)


class MeanTopK(MeanOfValues):
    """Top-k accuracy, computed by k rounds of finding and removing the maximum."""

    def __init__(self, predictions: ClassPredictions, k: int) -> None:
        super().__init__(predictions)
        predictions.request_arrays(probabilities=True)
        self._predictions, self._k = predictions, k
        self._left = np.zeros((predictions.count, predictions.width), np.float32)
        self._best = np.zeros(predictions.count, np.int64)
        self._hits = np.zeros(predictions.count, np.bool_)
        self._factors = np.zeros(predictions.count)

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
    """Cross entropy: minus the mean of the logarithms, in units of `unit`."""

    def __init__(self, predictions: ClassPredictions, unit: float = 1.0) -> None:
        super().__init__(predictions, LOG)
        self._unit = unit

    def value(self) -> float:
        """Return the mean over everything since the last reset; NaN if nothing was measured."""
        return -super().value() / self._unit


class ExponentialMean(SummedMean):
    """Perplexity: the exponential of minus the mean of the logarithms."""

    def __init__(self, predictions: ClassPredictions) -> None:
        super().__init__(predictions, LIMITED_LOG)

    def value(self) -> float:
        """Return exp of minus the mean; NaN if nothing was measured."""
        return math.exp(-super().value())


class CountedPairs(Metric):
    """Confusion matrix: totals are [classes, classes], labels by predicted classes."""

    def __init__(self, predictions: ClassPredictions) -> None:
        self._predictions = predictions
        predictions.request_arrays()
        self.totals = np.zeros((predictions.classes, predictions.classes))
        self._flat = self.totals.reshape(-1)
        self._index = np.zeros(predictions.count, np.int64)
        self._amounts = np.zeros(predictions.count)

    def share(self, other: Metric) -> None:
        """Add to another metric's sums from now on."""
        super().share(other)
        self._flat = self.totals.reshape(-1)

    def update(self) -> None:
        """Add the current batch of the predictions."""
        best = counted(self._predictions, self._index, self._amounts)
        np.multiply(self._index, self._predictions.classes, out=self._index)
        np.add(self._index, best, out=self._index)
        np.add.at(self._flat, self._index, self._amounts)

    def value(self) -> Figure:
        """Return rows of counts; integral counts are integers."""
        return [
            [int(count) if count.is_integer() else count for count in row]
            for row in self.totals.tolist()
        ]


def counted(predictions: ClassPredictions, labels: Array, amounts: Array) -> Array:
    """Return the predicted classes; write labels and weights of the predictions.

    labels: overwritten with the labels, clipped to valid classes. amounts: overwritten with the
    weights: 0 for predictions that do not count, NaN for those with a NaN probability.
    """
    np.maximum(predictions.labels, 0, out=labels)
    np.minimum(labels, predictions.classes - 1, out=labels)
    np.add(predictions.weights, predictions.doubt, out=amounts)
    predictions.leave_out(amounts)
    return predictions.best
