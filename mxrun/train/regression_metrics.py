"""Regression metrics: MXNet 1.9.1's MSE, MAE and RMSE, computed over an epoch as over one batch.

MXNet averages the figures of its batches (for RMSE, their roots), and a short last batch has the
weight of the others. Here every element of every record has the same weight, independent of
batches.
"""

from __future__ import annotations

import math

import numpy as np

from mxrun.base.regression import Regression
from mxrun.train.metric_kind import MeanOfValues, Metric, MetricKind
from mxrun.train.predictions import LossPredictions, NumberPredictions, Task


class NumberMetricKind(MetricKind):
    """Metric of predicted numbers."""

    def why_unsupported(self, task: Task) -> str:
        """Return why the loss cannot be measured; the metric needs labels of the output's shape."""
        if task is None:
            return "has no labels to compare predictions with"
        return "" if isinstance(task, Regression) else "predicts classes, not numbers"


class MeanSquaredErrorKind(NumberMetricKind):
    """Mean of (output - label)^2 over all elements."""

    @property
    def figure(self) -> str:
        """Name of the figure: mse."""
        return "mse"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric that sums squares."""
        return MeanSquaredError(predictions.numbers)


class MeanAbsoluteErrorKind(NumberMetricKind):
    """Mean of |output - label| over all elements."""

    @property
    def figure(self) -> str:
        """Name of the figure: mae."""
        return "mae"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric that sums absolute values."""
        return MeanAbsoluteError(predictions.numbers)


class RootMeanSquaredErrorKind(NumberMetricKind):
    """Root of the mean of (output - label)^2 over all elements."""

    @property
    def figure(self) -> str:
        """Name of the figure: rmse."""
        return "rmse"

    def create(self, predictions: LossPredictions) -> Metric:
        """Return a metric that sums squares."""
        return RootMeanSquaredError(predictions.numbers)


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
