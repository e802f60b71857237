"""Measurements of a phase: mean loss and metrics, updated batch by batch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import field
from typing import Any

import numpy as np

from mxrun.base.classification import Classification, Likelihood
from mxrun.base.dataclass import dataclass
from mxrun.base.regression import Regression
from mxrun.base.tensor import TensorSpec
from mxrun.executor.executor import Executor
from mxrun.executor.side_program import BatchTensors, DeviceTensor, Mirror, new_tensor
from mxrun.graph.phases import TRAIN, bucket_phase
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.io.loading.iterator import DataIterator
from mxrun.train.class_weights import ClassWeights
from mxrun.train.gradient_scale import GradientScale
from mxrun.train.metric_kind import CROSS_ENTROPY, Figure, MetricKind, Metrics
from mxrun.train.predictions import Array, Task


@dataclass(frozen=True)
class LossTensors:
    """Names of one loss's layer, output, sum and label, and its view of them as classes or numbers.

    Of another layer, which metrics compare with a label, the sum `loss` is empty. label_classes:
    how the loss reads its label as class numbers, even if its output predicts no classes.
    equal_metric: the metric that is the mean of this loss by definition; empty if there is none.
    averages_gradient: whether its gradient is a mean over the batch, not a sum.
    """

    name: str
    output: str
    loss: str
    label: str
    classification: Classification | None
    regression: Regression | None = None
    label_classes: Classification | None = None
    equal_metric: str = ""
    averages_gradient: bool = False

    @property
    def task(self) -> Classification | Regression | None:
        """Task whose predictions are outputs of the loss."""
        return self.classification or self.regression

    @property
    def is_compared(self) -> bool:
        """Whether there are predictions and labels to compare: classes or numbers."""
        return bool(self.label) and (self.task or self.label_classes) is not None

    def named(self, kinds: Iterable[MetricKind]) -> list[MetricKind]:
        """Return the metrics that are to measure this layer if they support it."""
        return [
            kind for kind in kinds if kind.of == self.name or (kind.of is None and self.loss != "")
        ]

    @property
    def measured(self) -> Task:
        """Task that the metrics of training measure: the loss itself, if it has no predictions."""
        if self.task is None and self.label_classes and self.equal_metric == CROSS_ENTROPY:
            return Likelihood()
        return self.task


def figure_prefixes(layers: Sequence[LossTensors]) -> list[str]:
    """Return what each layer's figures begin with: its name, if several have predictions."""
    several = sum(layer.is_compared for layer in layers) > 1
    return [f"{layer.name}." if several else "" for layer in layers]


@dataclass(frozen=True)
class Phase:
    """Phase with its data and metrics, each of the losses that it supports or of one layer.

    `partial` are further programs that run some of its batches. `class_weights`: those of its
    loss, if any; metrics are not weighted. `scale`: that of the gradients in training.
    """

    name: str
    iterator: DataIterator
    metrics: Collection[MetricKind]
    partial: tuple[str, ...] = ()
    class_weights: ClassWeights | None = None
    scale: GradientScale = field(default_factory=GradientScale)


class MeasuredLoss:
    """Mean of one loss, and its metrics, over batches; of another layer its metrics alone.

    Ignored labels and padded rows do not count. With class weights the mean is weighted: sum of
    weight * loss / sum of weight. Nothing is allocated per batch.
    """

    def __init__(
        self, executor: Executor, phase: Phase, loss: LossTensors, slots: Mapping[str, Array]
    ) -> None:
        self._phase = phase
        # Sum of the loss, and number of predictions in it, or sum of their weights.
        self._totals = np.zeros(2)
        self.is_finite = True
        self._set_loss(loss, len(slots[SAMPLE_WEIGHT]))
        self.metrics = self._metrics.by_figure
        self._bind(executor, slots)
        self.reset()

    def _set_loss(self, loss: LossTensors, rows: int) -> None:
        """Set the loss, whose tensors have the shapes of the batches to measure."""
        self._loss = loss
        # A loss whose output predicts no classes may still have several labels for each row.
        classification = loss.classification or loss.label_classes
        self._per_row, self._ignored = 1, None
        if classification is not None:
            self._per_row = classification.predictions // rows
            self._ignored = classification.ignored if classification.labelled else None
        is_saved = self._phase.name == TRAIN
        kinds = loss.named(self._phase.metrics)
        self._metrics = Metrics(kinds, loss.measured, rows, self._totals, is_saved)

    def _bind(
        self, executor: Executor, slots: Mapping[str, Array], length: int | None = None
    ) -> None:
        """Set the tensors that an update reads; length: that of the sequences, as of buckets."""
        phase, loss = self._phase, self._loss
        names = {name: bucket_phase(name, length) for name in (phase.name, *phase.partial)}
        programs = {name: each for name, each in names.items() if each in executor.programs}
        self._losses = {
            name: executor.result(each, loss.loss).mirror()
            for name, each in programs.items()
            if loss.loss
        }
        self._weight = slots[SAMPLE_WEIGHT]
        rows = len(self._weight)
        # Rows that are records, for metrics; with class weights those of the loss differ.
        weight, self._is_record = _tensor(executor, SAMPLE_WEIGHT, self._weight), None
        if phase.class_weights is not None:
            weight = new_tensor(executor.device, weight.spec)
            self._is_record = weight.mirror()
        if self.metrics and self._metrics.reads_output:
            label = _tensor(executor, loss.label, slots[loss.label])
            outputs = {n: executor.result(each, loss.output) for n, each in programs.items()}
            self._updates = {
                name: self._metrics.updater(BatchTensors(label, output, weight))
                for name, output in outputs.items()
            }
        if loss.label:
            self._label = slots[loss.label]
        if self._ignored is not None:
            self._labels_by_row = self._label.reshape(rows, -1)
            self._counted = np.zeros(self._labels_by_row.shape, np.bool_)

    def beside(self, executor: Executor, slots: Mapping[str, Array]) -> MeasuredLoss:
        """Return a measurement of another executor's batches that adds to the same sums."""
        other = copy(self)
        other._bind(executor, slots)
        return other

    def of_length(
        self, executor: Executor, slots: Mapping[str, Array], loss: LossTensors, length: int
    ) -> MeasuredLoss:
        """Return a measurement of sequences of another length that adds to the same sums."""
        other = copy(self)
        other._set_loss(loss, len(slots[SAMPLE_WEIGHT]))
        other._metrics.share(self.metrics)
        other._bind(executor, slots, length)
        return other

    def reset(self) -> None:
        """Reset all sums."""
        self._totals.fill(0)
        for metric in self.metrics.values():
            metric.reset()

    def update(self, valid: int, program: str) -> None:
        """Add the batch that `program` has just run, of which `valid` rows are records."""
        if self._losses:
            self._add_loss(valid, self._losses[program])
        if self._is_record is not None:
            self._is_record.array[:valid], self._is_record.array[valid:] = 1, 0
            self._is_record.store()
        if self.metrics and self._metrics.reads_output:
            self._updates[program]()

    def _add_loss(self, valid: int, mirror: Mirror) -> None:
        """Add the loss of a batch, and the number or the weights of its predictions."""
        mirror.load()
        loss = mirror.array.item()
        self.is_finite = math.isfinite(loss)
        self._totals[0] += loss
        if self._is_record is not None:
            self._add_weights(valid)
        elif self._ignored is None:
            self._totals[1] += valid * self._per_row
        else:
            np.not_equal(self._labels_by_row, self._ignored, out=self._counted)
            self._totals[1] += int(np.count_nonzero(self._counted[:valid]))

    def _add_weights(self, valid: int) -> None:
        """Add the weights of a batch's records to their sum; there is one label for each row."""
        counted: Any = True
        if self._ignored is not None:
            np.not_equal(self._labels_by_row, self._ignored, out=self._counted)
            counted = self._counted[:valid, 0]
        self._totals[1] += np.add.reduce(self._weight[:valid], dtype=np.float64, where=counted)

    @property
    def is_loss(self) -> bool:
        """Whether the layer is a loss."""
        return self._loss.loss != ""

    def mean(self) -> float:
        """Return the mean loss of the predictions that count; NaN if there are none."""
        total, count = self._totals.tolist()
        return total / count if count else math.nan

    def state(self) -> dict[str, Array]:
        """Return the sums since the last reset, as arrays that can be saved or overwritten."""
        return {"": self._totals} | {name: metric.totals for name, metric in self.metrics.items()}


def _tensor(executor: Executor, name: str, array: Array) -> DeviceTensor:
    """Return the pinned tensor of which an array has the content, perhaps smaller than planned."""
    spec = TensorSpec(array.shape, array.dtype.name)
    return executor.tensor_at(executor.plan.offset(name), spec)


class Measure:
    """Loss and metrics of one phase over batches, for all losses and layers that metrics name.

    With several losses `loss` is the sum of their means. Metrics of several layers are prefixed by
    their names: `softmax1.accuracy`. numbers: names of the values that are no tables.
    """

    def __init__(
        self,
        executor: Executor,
        phase: Phase,
        losses: Sequence[LossTensors],
        slots: Mapping[str, Array],
    ) -> None:
        """`slots`: the io slots as host arrays, which hold the batch that is measured."""
        self._phase = phase.name
        self._names = [loss.name for loss in losses]
        self._losses = [MeasuredLoss(executor, phase, loss, slots) for loss in losses]
        self._metrics = {
            f"{prefix}{name}": metric
            for prefix, measured in zip(figure_prefixes(losses), self._losses, strict=True)
            for name, metric in measured.metrics.items()
        }
        tables = {kind.figure for kind in phase.metrics if kind.is_table}
        figures = (name for measured in self._losses for name in measured.metrics)
        named = zip(self._metrics, figures, strict=True)
        self.numbers = ("loss", *(name for name, figure in named if figure not in tables))

    def beside(self, executor: Executor, slots: Mapping[str, Array]) -> Measure:
        """Return a measurement of another executor's batches that adds to the same sums."""
        other = copy(self)
        other._losses = [loss.beside(executor, slots) for loss in self._losses]
        return other

    def of_length(
        self,
        executor: Executor,
        slots: Mapping[str, Array],
        losses: Sequence[LossTensors],
        length: int,
    ) -> Measure:
        """Return a measurement of sequences of another length that adds to the same sums.

        losses: with the shapes of that length.
        """
        other = copy(self)
        other._losses = [
            measured.of_length(executor, slots, loss, length)
            for measured, loss in zip(self._losses, losses, strict=True)
        ]
        return other

    def reset(self) -> None:
        """Reset all sums."""
        for loss in self._losses:
            loss.reset()

    def update(self, valid: int, program: str | None = None) -> None:
        """Add the batch that has just run, of which `valid` rows are records.

        `program` is the program that ran it, by default the phase's own.
        """
        for loss in self._losses:
            loss.update(valid, program or self._phase)

    @property
    def is_finite(self) -> bool:
        """True if the loss of the last batch is finite."""
        # Once for each step, in which a generator would take longer than its loop.
        for loss in self._losses:  # noqa: SIM110 - it takes half the time in every step
            if not loss.is_finite:
                return False
        return True

    def state(self) -> dict[str, Array]:
        """Return all sums since the last reset by name, as arrays to be saved or overwritten."""
        return {
            f"{name}.{part}" if part else name: array
            for name, loss in zip(self._names, self._losses, strict=True)
            for part, array in loss.state().items()
        }

    def loss(self) -> float:
        """Return the mean loss."""
        return sum(loss.mean() for loss in self._losses if loss.is_loss)

    def values(self) -> dict[str, Figure]:
        """Return the mean loss and the value of every metric."""
        return {
            "loss": self.loss(),
            **{name: metric.value() for name, metric in self._metrics.items()},
        }
