"""Metrics of predicted numbers: MXNet 1.9.1's MSE, MAE and RMSE, over an epoch as one batch.

MXNet averages the figures of its batches, a short last one weighing as much as the others, and of
RMSE their roots; here every element of every record weighs the same, however they are split.
"""

from __future__ import annotations

import math

import numpy as np

from mxrun.base.regression import Regression
from mxrun.train.metric_kind import MeanOfValues, Metric, MetricKind
from mxrun.train.predictions import LossPredictions, NumberPredictions, Seen


class NumberMetricKind(MetricKind):
    """A metric of predicted numbers."""

    def unfit(self, seen: Seen) -> str:
        """Why not; it needs labels of the output's shape."""
        if seen is None:
            return "has no labels to compare predictions with"
        return "" if isinstance(seen, Regression) else "predicts classes, not numbers"


class MeanSquaredErrorKind(NumberMetricKind):
    """The mean of (output - label)^2 over all elements."""

    @property
    def figure(self) -> str:
        """mse."""
        return "mse"

    def create(self, predictions: LossPredictions) -> Metric:
        """Sums of squares."""
        return MeanSquaredError(predictions.numbers)


class MeanAbsoluteErrorKind(NumberMetricKind):
    """The mean of |output - label| over all elements."""

    @property
    def figure(self) -> str:
        """mae."""
        return "mae"

    def create(self, predictions: LossPredictions) -> Metric:
        """Sums of absolute values."""
        return MeanAbsoluteError(predictions.numbers)


class RootMeanSquaredErrorKind(NumberMetricKind):
    """The root of the mean of (output - label)^2 over all elements."""

    @property
    def figure(self) -> str:
        """rmse."""
        return "rmse"

    def create(self, predictions: LossPredictions) -> Metric:
        """Sums of squares."""
        return RootMeanSquaredError(predictions.numbers)


class MeanSquaredError(MeanOfValues):
    """Sums squares."""

    def __init__(self, predictions: NumberPredictions) -> None:
        super().__init__(predictions)
        self._predictions = predictions

    def _measure(self) -> None:
        np.square(self._predictions.differences, out=self._values)


class MeanAbsoluteError(MeanOfValues):
    """Sums absolute values."""

    def __init__(self, predictions: NumberPredictions) -> None:
        super().__init__(predictions)
        self._predictions = predictions

    def _measure(self) -> None:
        np.abs(self._predictions.differences, out=self._values)


class RootMeanSquaredError(MeanSquaredError):
    """Sums squares, of which it gives the root of the mean."""

    def value(self) -> float:
        """The root; NaN if nothing was measured."""
        return math.sqrt(super().value())
