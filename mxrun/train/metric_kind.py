"""What all metrics are: a kind with its parameters, and its sums over the batches of an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from mxrun.base.params import Parameters
from mxrun.train.predictions import (
    Array,
    ClassPredictions,
    LossPredictions,
    Predictions,
    Seen,
)

Table = list[list[float]]
Figure = float | Table


class Metric(ABC):
    """Sums over batches; `totals`, float64, is all that is remembered between them.

    Nothing is allocated for a batch. A prediction that is no number makes the figure NaN. The same
    batches give the same bits.
    """

    totals: Array

    @abstractmethod
    def update(self) -> None:
        """Add the batch that the predictions hold."""

    @abstractmethod
    def value(self) -> Figure:
        """The figure of everything since the last reset; NaN if that is nothing."""

    def reset(self) -> None:
        """Forget every batch."""
        self.totals.fill(0)


class Mean(Metric):
    """A weighted mean over predictions: totals are the sums of weight * value and of weight."""

    def __init__(self) -> None:
        self.totals = np.zeros(2)

    def value(self) -> float:
        """The mean over everything since the last reset; NaN if that is nothing."""
        total, weight = self.totals.tolist()
        return total / weight if weight else float("nan")


class SummedMean(Mean):
    """A mean of which the predictions give the sums of each batch."""

    def __init__(self, predictions: ClassPredictions, what: int) -> None:
        """`what` is asked of the predictions."""
        super().__init__()
        self._sums = predictions.want(what)

    def update(self) -> None:
        """Add the batch that the predictions hold."""
        np.add(self.totals, self._sums, out=self.totals)


class MeanOfValues(Mean):
    """A mean of which each value is written down."""

    def __init__(self, predictions: Predictions) -> None:
        super().__init__()
        self._weighted, self._values = predictions, np.zeros_like(predictions.weights)

    @abstractmethod
    def _measure(self) -> None:
        """Write one value per prediction into `self._values`."""

    def update(self) -> None:
        """Add the batch that the predictions hold, in NumPy's fixed pairwise order."""
        self._measure()
        self._weighted.leave_out(self._values)
        np.multiply(self._values, self._weighted.weights, out=self._values)
        self.totals[0] += np.add.reduce(self._values)
        self.totals[1] += self._weighted.weight


class MetricKind(Parameters):
    """A metric with its parameters."""

    higher_is_better: ClassVar[bool] = False
    is_table: ClassVar[bool] = False

    @property
    @abstractmethod
    def figure(self) -> str:
        """The name of its figure in what is printed and recorded."""

    @abstractmethod
    def unfit(self, seen: Seen) -> str:
        """Why a loss that sees its tensors so cannot be measured by it; empty where it can."""

    @abstractmethod
    def create(self, predictions: LossPredictions) -> Metric:
        """Sums over the predictions of a loss that it fits."""


class Metrics:
    """The metrics of one loss, `by_figure`: those of `kinds` that fit what is `seen` of it."""

    def __init__(self, kinds: Iterable[MetricKind], seen: Seen, rows: int) -> None:
        self._predictions = LossPredictions(seen, rows)
        self.by_figure = {
            kind.figure: kind.create(self._predictions) for kind in kinds if not kind.unfit(seen)
        }

        self._metrics = tuple(self.by_figure.values())
        self._may_warn = any(isinstance(metric, MeanOfValues) for metric in self._metrics)

    def update(self, label: Array, output: Array, weight: Array) -> None:
        """Add a batch: labels and output in row-major order, the weights of its rows."""
        if not self._may_warn:
            self._add(label, output, weight)
            return
        # Padded rows and networks that diverge hold anything; what counts becomes NaN.
        with np.errstate(all="ignore"):
            self._add(label, output, weight)

    def _add(self, label: Array, output: Array, weight: Array) -> None:
        self._predictions.load(label, output, weight)
        for metric in self._metrics:
            metric.update()
