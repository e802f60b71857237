"""Regression metrics: MXNet 1.9.1's MSE, MAE and RMSE, computed over an epoch as over one batch.

MXNet averages the figures of its batches (for RMSE, their roots), and a short last batch has the
weight of the others. Here every element of every record has the same weight, independent of
batches.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from mxrun.base.regression import Regression
from mxrun.train.metric_kind import METRICS, MeanOfValues, Metric, MetricKind
from mxrun.train.predictions import Array, LossPredictions, NumberPredictions, Task

# Relative error of a sum of float64 numbers, with a margin for millions of them.
_ROUNDING = 1e-13


class NumberMetricKind(MetricKind):
    """Metric of predicted numbers."""

    def why_unsupported(self, task: Task) -> str:
        """Return why the loss cannot be measured; the metric needs labels of the output's shape."""
        if task is None:
            return "has no labels to compare predictions with"
        return "" if isinstance(task, Regression) else "predicts classes, not numbers"


@METRICS.register("mse", foreign={"mse": "meansquarederror l2"})
class MeanSquaredErrorKind(NumberMetricKind):
    """Mean of (output - label)^2 over all elements."""

    @property
    def figure(self) -> str:
        """Name of the figure: mse."""
        return "mse"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric that sums squares."""
        return MeanSquaredError(predictions.numbers)


@METRICS.register("mae", foreign={"mae": "meanabsoluteerror l1"})
class MeanAbsoluteErrorKind(NumberMetricKind):
    """Mean of |output - label| over all elements."""

    @property
    def figure(self) -> str:
        """Name of the figure: mae."""
        return "mae"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric that sums absolute values."""
        return MeanAbsoluteError(predictions.numbers)


@METRICS.register("rmse", foreign={"rmse": "rootmeansquarederror"})
class RootMeanSquaredErrorKind(NumberMetricKind):
    """Root of the mean of (output - label)^2 over all elements."""

    @property
    def figure(self) -> str:
        """Name of the figure: rmse."""
        return "rmse"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric that sums squares."""
        return RootMeanSquaredError(predictions.numbers)


@METRICS.register("r2", foreign={"r2": "r2score rsquared"})
class DeterminationKind(NumberMetricKind):
    """Coefficient of determination R^2: 1 - sum (output - label)^2 / sum (label - mean label)^2.

    1 is a perfect prediction, 0 that of the mean label. With several outputs, both sums are over
    all of them, each with its own mean.
    """

    higher_is_better: ClassVar[bool] = True
    undefined: ClassVar[str] = "if all labels are equal"

    @property
    def figure(self) -> str:
        """Name of the figure: r2."""
        return "r2"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric that sums squares of errors and labels."""
        return Determination(predictions.numbers)


@METRICS.register(
    "pearson_correlation", foreign={"pearson_correlation": "pearsonr pearsoncorrcoef pearson"}
)
class PearsonKind(NumberMetricKind):
    """Pearson's correlation of all outputs with their labels, -1 to 1."""

    higher_is_better: ClassVar[bool] = True
    undefined: ClassVar[str] = "if all labels or all outputs are equal"

    @property
    def figure(self) -> str:
        """Name of the figure: pearson_correlation."""
        return "pearson_correlation"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric that sums outputs, labels and their products."""
        return Correlation(predictions.numbers)


@METRICS.register("binary_accuracy")
class BinaryAccuracyKind(NumberMetricKind):
    """Fraction of all outputs, each a probability, that are on the label's side of a threshold."""

    higher_is_better: ClassVar[bool] = True

    threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.5, examples=[0.8], description="Probability above which an output means 1."
    )

    @property
    def figure(self) -> str:
        """Name of the figure: binary_accuracy."""
        return "binary_accuracy"

    def why_unsupported(self, task: Task) -> str:
        """Return why the loss cannot be measured; its outputs must be probabilities."""
        reason = super().why_unsupported(task)
        if isinstance(task, Regression) and not task.probabilities:
            reason = "predicts numbers, not probabilities"
        return reason

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric over the outputs."""
        return BinaryAccuracy(predictions.numbers, self.threshold)


class MeanSquaredError(MeanOfValues):
    """Mean of squared differences."""

    def __init__(self, predictions: NumberPredictions) -> None:
        super().__init__(predictions)
        self._predictions = predictions

    def _measure(self) -> None:
        np.square(self._predictions.differences, out=self._values)


class MeanAbsoluteError(MeanOfValues):
    """Mean of absolute differences."""

    def __init__(self, predictions: NumberPredictions) -> None:
        super().__init__(predictions)
        self._predictions = predictions

    def _measure(self) -> None:
        np.abs(self._predictions.differences, out=self._values)


class RootMeanSquaredError(MeanSquaredError):
    """Root of the mean of squared differences."""

    def value(self) -> float:
        """Return the root; NaN if nothing was measured."""
        return math.sqrt(super().value())


class BinaryAccuracy(MeanOfValues):
    """Fraction of outputs on the label's side of the threshold; a label above 0.5 is a 1."""

    def __init__(self, predictions: NumberPredictions, threshold: float) -> None:
        super().__init__(predictions)
        self._predictions, self._threshold = predictions, threshold
        self._above, self._ones = np.zeros((2, len(self._values)), np.bool_)

    def _measure(self) -> None:
        differences, labels = self._predictions.differences, self._predictions.labels
        # output - label is NaN if the output is, and so is its product with 0.
        np.multiply(differences, 0, out=self._values)
        np.greater(labels, 0.5, out=self._ones)
        outputs = self._predictions.outputs
        np.greater(outputs, self._threshold, out=self._above)
        np.equal(self._above, self._ones, out=self._above)
        np.add(self._values, self._above, out=self._values)


class SumsOfNumbers(Metric):
    """Metric of sums over the elements of the outputs that count."""

    may_warn: ClassVar[bool] = True

    def __init__(self, predictions: NumberPredictions, sums: int, elements: int) -> None:
        self._predictions = predictions
        self.totals = np.zeros((sums, elements))
        self._values = np.zeros(predictions.count)
        self._table = self._values.reshape(-1, elements)
        self._sums = np.zeros(elements)

    def _add(self, row: int, left: Array | float, right: Array | None = None) -> None:
        """Add the sum over records of left * right, or of left, to a row of the totals."""
        if right is None:
            self._values[...] = left
        else:
            np.multiply(left, right, out=self._values)
        self._predictions.leave_out(self._values)
        np.multiply(self._values, self._predictions.weights, out=self._values)
        np.add.reduce(self._table, axis=0, out=self._sums)
        np.add(self.totals[row], self._sums, out=self.totals[row])


class Determination(SumsOfNumbers):
    """R^2: totals are the sums of weights, labels, squared labels and squared errors."""

    def __init__(self, predictions: NumberPredictions) -> None:
        super().__init__(predictions, 4, predictions.elements)

    def update(self) -> None:
        """Add the current batch of the predictions."""
        labels, differences = self._predictions.labels, self._predictions.differences
        self._add(0, 1.0)
        self._add(1, labels)
        self._add(2, labels, labels)
        self._add(3, differences, differences)

    def value(self) -> float:
        """Return R^2; NaN if nothing was measured or all labels are equal."""
        weights, labels, squares, errors = self.totals
        if not weights.any():
            return math.nan
        spread = np.sum(spread_of(weights, labels, squares))
        return float(1 - np.sum(errors) / spread) if spread > 0 else math.nan


def spread_of(count: Array | float, labels: Array, squares: Array) -> Array:
    """Return sum (label - mean label)^2 from the sums of 1, of the labels and of their squares.

    What rounding of the sums alone can explain is 0, as of labels that are all equal.
    """
    spread: Array = squares - labels**2 / count
    return np.where(spread > _ROUNDING * squares, spread, 0.0)


class Correlation(SumsOfNumbers):
    """Pearson's correlation: totals are the sums of 1, x, y, x^2, y^2 and x y over all elements."""

    def __init__(self, predictions: NumberPredictions) -> None:
        super().__init__(predictions, 6, 1)

    def update(self) -> None:
        """Add the current batch of the predictions."""
        outputs, labels = self._predictions.outputs, self._predictions.labels
        self._add(0, 1.0)
        self._add(1, outputs)
        self._add(2, labels)
        self._add(3, outputs, outputs)
        self._add(4, labels, labels)
        self._add(5, outputs, labels)

    def value(self) -> float:
        """Return the correlation; NaN if nothing was measured or one side is constant."""
        count, x, y, xx, yy, xy = self.totals[:, 0].tolist()
        spread = (count * xx - x * x) * (count * yy - y * y)
        return (count * xy - x * y) / math.sqrt(spread) if spread > 0 else math.nan
