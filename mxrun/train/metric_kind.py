"""Base classes of metrics: a kind with parameters, and the sums over the batches of an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from mxrun.base.classification import Likelihood
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters
from mxrun.base.registry import Registry
from mxrun.executor.side_program import BatchTensors
from mxrun.train.predictions import (
    Array,
    ClassPredictions,
    LossPredictions,
    Predictions,
    Task,
)

CROSS_ENTROPY = "cross_entropy"
"""The figure that is the mean of a loss, if the loss is a cross-entropy."""

Table = list[list[float]]
Figure = float | Table


class Metric(ABC):
    """Sums over batches; `totals`, float64, is the only state between them.

    Nothing is allocated per batch. A NaN prediction makes the figure NaN. The same batches give the
    same bits.
    """

    totals: Array
    # Whether NumPy may warn of values that are not finite, which padded rows may hold.
    may_warn: ClassVar[bool] = False

    @abstractmethod
    def update(self) -> None:
        """Add the current batch of the predictions."""

    @abstractmethod
    def value(self) -> Figure:
        """Return the figure over everything since the last reset; NaN if nothing was measured."""

    def reset(self) -> None:
        """Reset the sums."""
        self.totals.fill(0)

    def share(self, other: Metric) -> None:
        """Add to the sums of the same metric of batches of another shape from now on."""
        self.totals = other.totals


class Mean(Metric):
    """Weighted mean over predictions: totals are the sums of weight * value and of weight."""

    def __init__(self) -> None:
        self.totals = np.zeros(2)

    def value(self) -> float:
        """Return the mean over everything since the last reset; NaN if nothing was measured."""
        total, weight = self.totals.tolist()
        return total / weight if weight else float("nan")


class SummedMean(Mean):
    """Mean whose sums over each batch are computed by the predictions' native loop."""

    def __init__(self, predictions: ClassPredictions, kind: int) -> None:
        """`kind`: the sum requested from the predictions, such as BEST."""
        super().__init__()
        self._sums = predictions.request(kind)

    def update(self) -> None:
        """Add the current batch of the predictions."""
        np.add(self.totals, self._sums, out=self.totals)


class MeanOfValues(Mean):
    """Mean over values that are written out for each prediction."""

    may_warn: ClassVar[bool] = True

    def __init__(self, predictions: Predictions) -> None:
        super().__init__()
        self._weighted, self._values = predictions, np.zeros(predictions.count)

    @abstractmethod
    def _measure(self) -> None:
        """Write one value per prediction into `self._values`."""

    def update(self) -> None:
        """Add the current batch of the predictions, in NumPy's fixed pairwise order."""
        self._measure()
        self._weighted.leave_out(self._values)
        np.multiply(self._values, self._weighted.weights, out=self._values)
        self.totals[0] += np.add.reduce(self._values)
        self.totals[1] += self._weighted.weight


class MetricKind(Parameters):
    """Metric with its parameters, of every loss that it supports or of one layer."""

    of: str | None = Field(
        default=None,
        examples=["softmax"],
        description="Layer that is measured: a loss, or one whose numbers or probabilities are "
        "compared with an input; default: every loss that the metric fits.",
    )
    label: str | None = Field(
        default=None,
        examples=["label"],
        description="Input with which the layer is compared; default: the label of the loss, or "
        "the only label.",
    )

    higher_is_better: ClassVar[bool] = False
    is_table: ClassVar[bool] = False
    # Whether totals of different records may be added.
    adds_up: ClassVar[bool] = True
    # When the figure is undefined, although there are records; empty if it never is.
    undefined: ClassVar[str] = ""

    @property
    @abstractmethod
    def figure(self) -> str:
        """Name of the figure in output and records."""

    @abstractmethod
    def why_unsupported(self, task: Task) -> str:
        """Return why a loss with this view of its tensors is not supported; empty if it is."""

    @abstractmethod
    def create(self, predictions: LossPredictions) -> Metric:
        """Return the sums over the predictions of a supported loss."""

    def of_mean(self, loss: float) -> float:
        """Return the figure for the mean `loss` of a cross-entropy without stored predictions."""
        raise NotImplementedError


METRICS: Registry[type[MetricKind]] = Registry("metric")


class OfLoss(Mean):
    """Metric that follows from the mean of a cross-entropy; totals are those of the loss."""

    def __init__(self, kind: MetricKind, totals: Array) -> None:
        self._kind, self.totals = kind, totals

    def update(self) -> None:
        """Do nothing: the loss itself is summed."""

    def value(self) -> float:
        """Return the figure; NaN if nothing was measured."""
        return self._kind.of_mean(super().value())


class Metrics:
    """Metrics of one loss by figure: those of `kinds` that support its `task`."""

    def __init__(
        self,
        kinds: Iterable[MetricKind],
        task: Task,
        rows: int,
        totals: Array | None = None,
        is_saved: bool = False,
    ) -> None:
        """`totals`: sum of the loss, and number of labels in it; needed for a `Likelihood` only.
        is_saved: whether checkpoints hold the sums.
        """
        self._predictions = LossPredictions(task, rows, is_saved)
        fitting = [kind for kind in kinds if not kind.why_unsupported(task)]
        self.by_figure: dict[str, Metric] = {}
        # Whether outputs of the loss are read.
        self.reads_output = not isinstance(task, Likelihood)
        for kind in fitting:
            if self.reads_output:
                self.by_figure[kind.figure] = kind.create(self._predictions)
            elif totals is not None:
                self.by_figure[kind.figure] = OfLoss(kind, totals)
        self._metrics = tuple(self.by_figure.values())
        self._may_warn = any(metric.may_warn for metric in self._metrics)

    def share(self, others: Mapping[str, Metric]) -> None:
        """Add to the sums of the same metrics of batches whose sequences have another length.

        Raises UserError for a metric with sums for each element of a sequence.
        """
        for figure, metric in self.by_figure.items():
            if metric.totals.shape != others[figure].totals.shape:
                problem = f"{figure} has a sum for each element, which sequences in buckets lack"
                raise UserError(Diagnostic(problem, hint="leave out the metric, or the buckets"))
            metric.share(others[figure])

    def updater(self, batch: BatchTensors) -> Callable[[], None]:
        """Return the function that adds a batch in these tensors."""
        readers = self._predictions.readers(batch)

        def add() -> None:
            for read in readers:
                read()
            for metric in self._metrics:
                metric.update()

        if not self._may_warn:
            return add

        def add_quietly() -> None:
            # Padded rows and diverging networks contain any values; those that count make the
            # figure NaN.
            with np.errstate(all="ignore"):
                add()

        return add_quietly
