"""The training loop: batches into the plan's slots, the tape, metrics; nothing else per step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.classification import Classification
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.executor.executor import Executor
from mxrun.graph.compile import EVALUATE, TRAIN
from mxrun.io.batch import SAMPLE_WEIGHT
from mxrun.io.iterator import DataIterator
from mxrun.train.metric import Metric, create_metric
from mxrun.train.observer import EpochDone, Observer, StepDone

_REPORT_INTERVAL_S = 0.1


@dataclass(frozen=True)
class LossTensors:
    """One loss: names of its layer, its output, its sum and its label, and how it sees them."""

    name: str
    output: str
    loss: str
    label: str
    classification: Classification | None


@dataclass(frozen=True)
class Phase:
    """One phase with its data and the names of the metrics measured on it."""

    name: str
    iterator: DataIterator
    metrics: Collection[str]


@dataclass(frozen=True)
class LoopResult:
    """What a run came to: steps taken, the last evaluation, times of all steps in ms."""

    steps: int
    evaluation: Mapping[str, float]
    step_ms: npt.NDArray[np.float64]
    first_step_at: float


class MeasuredLoss:
    """Follows one loss through batches: its mean over what counts, and the metrics.

    Ignored labels and padded rows count for nothing; nothing is allocated.
    """

    def __init__(self, executor: Executor, phase: Phase, loss: LossTensors) -> None:
        self._loss = executor.result(phase.name, loss.loss)
        self._weight = executor.array(SAMPLE_WEIGHT)
        rows = len(self._weight)
        seen = loss.classification
        self._per_row = 1 if seen is None else seen.predictions // rows
        self._ignored = None if seen is None or not seen.labelled else seen.ignored
        self.metrics: dict[str, Metric] = {}
        if seen is not None and seen.labelled:
            # Without positions the classes lie last, where NumPy finds the largest fastest.
            positions = () if seen.positions == 1 else (seen.positions,)
            output = executor.result(phase.name, loss.output)
            self._output = output.reshape(seen.samples, seen.classes, *positions)
            self._label = executor.array(loss.label).reshape(seen.samples, *positions)
            self._labels_by_row = self._label.reshape(rows, -1)
            self._counted = np.zeros(self._labels_by_row.shape, np.bool_)
            spec = TensorSpec(self._output.shape, self._output.dtype.name)
            for name in phase.metrics:
                self.metrics[name] = create_metric(name, spec, rows, self._ignored)
        self.reset()

    def reset(self) -> None:
        """Forget everything measured."""
        self._sum, self._count = 0.0, 0
        for metric in self.metrics.values():
            metric.reset()

    def update(self, valid: int) -> None:
        """Take in the batch that has just run, of which `valid` rows are records."""
        self._sum += self._loss.item()
        if self._ignored is None:
            self._count += valid * self._per_row
        else:
            np.not_equal(self._labels_by_row, self._ignored, out=self._counted)
            self._count += int(np.count_nonzero(self._counted[:valid]))
        for metric in self.metrics.values():
            metric.update(self._label, self._output, self._weight)

    def mean(self) -> float:
        """The mean loss of what counts."""
        return self._sum / max(1, self._count)


class Measure:
    """Follows one phase through its batches: the loss and the metrics of every loss.

    With several losses `loss` is the sum of their means, and metrics carry their layers' names:
    `softmax1.accuracy`.
    """

    def __init__(self, executor: Executor, phase: Phase, losses: Sequence[LossTensors]) -> None:
        self._losses = [MeasuredLoss(executor, phase, loss) for loss in losses]
        self._metrics = {
            name if len(losses) == 1 else f"{loss.name}.{name}": metric
            for loss, measured in zip(losses, self._losses, strict=True)
            for name, metric in measured.metrics.items()
        }

    def reset(self) -> None:
        """Forget everything measured."""
        for loss in self._losses:
            loss.reset()

    def update(self, valid: int) -> None:
        """Take in the batch that has just run, of which `valid` rows are records."""
        for loss in self._losses:
            loss.update(valid)

    def values(self) -> dict[str, float]:
        """The mean loss and every metric."""
        loss = sum(loss.mean() for loss in self._losses)
        return {"loss": loss} | {name: metric.value() for name, metric in self._metrics.items()}


class TrainingLoop:
    """Runs epochs of training, each followed by an evaluation in the same arena."""

    def __init__(
        self,
        executor: Executor,
        losses: Sequence[LossTensors],
        train: Phase,
        evaluation: Phase | None,
        observer: Observer,
    ) -> None:
        self._executor = executor
        self._observer = observer
        self._train = train
        self._evaluation = evaluation
        self._slots = slots(executor, train.iterator)
        self._measure = Measure(executor, train, losses)
        self._evaluation_measure = (
            None if evaluation is None else Measure(executor, evaluation, losses)
        )
        self._step, self._records, self._seconds = 0, 0, 0.0
        self._step_ms: npt.NDArray[np.float64] = np.empty(0)
        self._first_step_at = math.nan
        self._reported = 0.0

    def run(self, epochs: int, record: Callable[[EpochDone], None]) -> LoopResult:
        """Train for `epochs`; `record` gets every epoch's figures.

        Raises UserError when the loss is no longer finite.
        """
        evaluation: Mapping[str, float] = {}
        self._step_ms = np.zeros(epochs * len(self._train.iterator))
        for epoch in range(1, epochs + 1):
            records, seconds, started = self._records, self._seconds, time.perf_counter()
            train = self._train_epoch(epoch)
            evaluation = self._evaluate(epoch)
            done = EpochDone(
                epoch=epoch,
                step=self._step,
                train=train,
                evaluation=evaluation,
                records=self._records - records,
                train_seconds=self._seconds - seconds,
                seconds=time.perf_counter() - started,
            )
            record(done)
            self._observer.epoch_done(done)
        return LoopResult(self._step, evaluation, self._step_ms, self._first_step_at)

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        iterator, measure, run = self._train.iterator, self._measure, self._executor.run
        iterator.reset(epoch)
        measure.reset()
        clock = time.perf_counter
        while True:
            started = clock()
            batch = iterator.next_into(self._slots)
            if batch is None:
                break
            run(TRAIN)
            measure.update(batch.valid)
            finished = clock()
            self._step_ms[self._step] = (finished - started) * 1e3
            self._seconds += finished - started
            self._records += batch.valid
            self._step += 1
            if self._step == 1:
                self._first_step_at = time.monotonic()
            if finished - self._reported >= _REPORT_INTERVAL_S:
                self._reported = finished
                self._report(epoch)
        values = measure.values()
        if not math.isfinite(values["loss"]):
            raise UserError(
                f"the loss is {values['loss']} in epoch {epoch}: training has diverged; "
                "nothing was saved. Lower the learning rate (train.optimizer)"
            )
        return values

    def _report(self, epoch: int) -> None:
        values = self._measure.values()
        done = StepDone(epoch, self._step, values, self._records, self._seconds)
        self._observer.step_done(done)

    def _evaluate(self, epoch: int) -> Mapping[str, float]:
        if self._evaluation is None or self._evaluation_measure is None:
            return {}
        iterator, measure = self._evaluation.iterator, self._evaluation_measure
        iterator.reset(epoch)
        measure.reset()
        while (batch := iterator.next_into(self._slots)) is not None:
            self._executor.run(EVALUATE)
            measure.update(batch.valid)
        return measure.values()


def slots(executor: Executor, iterator: DataIterator) -> dict[str, npt.NDArray[Any]]:
    """The io slots that an iterator fills, as arrays on the arena."""
    return {name: executor.array(name) for name in iterator.specs if name in executor.plan.specs}


def percentiles(step_ms: npt.NDArray[np.float64]) -> dict[str, float]:
    """median, p90, p99 and min of step times; the first step, which warms up, is left out."""
    times = step_ms[1:] if len(step_ms) > 1 else step_ms
    return {
        "median": float(np.median(times)),
        "p90": float(np.percentile(times, 90)),
        "p99": float(np.percentile(times, 99)),
        "min": float(times.min()),
    }
