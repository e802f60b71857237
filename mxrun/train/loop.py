"""The training loop: batches into the plan's slots, the tape, metrics; nothing else per step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import UserError
from mxrun.executor.executor import Executor
from mxrun.graph.compile import EVALUATE, TRAIN
from mxrun.io.batch import SAMPLE_WEIGHT
from mxrun.io.iterator import DataIterator
from mxrun.train.metric import Metric
from mxrun.train.observer import EpochDone, Observer, StepDone

_REPORT_INTERVAL_S = 0.1


@dataclass(frozen=True)
class LossTensors:
    """Names of one loss: the network's output, the summed loss, and the label."""

    output: str
    loss: str
    label: str


@dataclass(frozen=True)
class Phase:
    """One phase with its data and the metrics measured on it."""

    name: str
    iterator: DataIterator
    metrics: Mapping[str, Metric]


@dataclass(frozen=True)
class LoopResult:
    """What a run came to: steps taken, the last evaluation, times of all steps in ms."""

    steps: int
    evaluation: Mapping[str, float]
    step_ms: npt.NDArray[np.float64]
    first_step_at: float


class Measure:
    """Follows one phase through its batches: the mean loss and the metrics, without allocating."""

    def __init__(self, executor: Executor, phase: Phase, losses: Sequence[LossTensors]) -> None:
        self._metrics = phase.metrics
        self._losses = [executor.result(phase.name, loss.loss) for loss in losses]
        self._output = executor.result(phase.name, losses[0].output)
        self._label = executor.array(losses[0].label)
        self._weight = executor.array(SAMPLE_WEIGHT)
        self.reset()

    def reset(self) -> None:
        """Forget everything measured."""
        self._loss_sum, self._samples = 0.0, 0
        for metric in self._metrics.values():
            metric.reset()

    def update(self, valid: int) -> None:
        """Take in the batch that has just run, of which `valid` rows are records."""
        for loss in self._losses:
            self._loss_sum += loss.item()
        self._samples += valid
        for metric in self._metrics.values():
            metric.update(self._label, self._output, self._weight)

    def values(self) -> dict[str, float]:
        """The mean loss per sample and every metric."""
        loss = self._loss_sum / max(1, self._samples)
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
        self._step = 0
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
            started = time.perf_counter()
            train = self._train_epoch(epoch)
            evaluation = self._evaluate(epoch)
            seconds = time.perf_counter() - started
            done = EpochDone(epoch, self._step, train, evaluation, seconds)
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
        samples = self._step * self._train.iterator.batch_size
        self._observer.step_done(StepDone(epoch, self._step, samples, values))

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
