"""Complete steps of one phase on synthetic batches, as `bench` measures and compares them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.executor.switch_interval import short_switch_interval
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import TRAIN, base_phase
from mxrun.graph.update_rule import SCHEDULE
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.io.loading.iterator import DataIterator
from mxrun.io.loading.open import open_iterator
from mxrun.operator.optimizer import Optimizer
from mxrun.planner.plan import Plan
from mxrun.preparation.prepared import Prepared
from mxrun.preparation.random_records import synthetic_records
from mxrun.train.host_arrays import slots
from mxrun.train.measure import Measure, Phase

# Steps whose rates are computed together, as in the training loop.
_RATES = 1024


class Steps:
    """Endless steps of one phase over a few synthetic batches.

    A training step uses the config's learning rate without its schedule, and the optimizer's
    corrections.
    """

    def __init__(self, built: ModelDefinition, plan: Plan, phase: str) -> None:
        """`phase`: one of the plan's, over sequences of the model's length."""
        self.phase = phase
        self._prepared = Prepared.of(built, plan)
        self.executor = self._prepared.executor
        self._built = built
        self._records = synthetic_records(built.model)
        self._iterator = self._new_iterator()
        self._slots = slots(self.executor, self._iterator, self._iterator.specs)
        self._measure = None
        if base_phase(phase) == TRAIN:
            measured = Phase(phase, self._iterator, built.training.metrics)
            losses, batch = built.model.measured, self._slots.arrays
            self._measure = Measure(self.executor, measured, losses, batch)
            self._schedule = self.executor.tensor(SCHEDULE).mirror()
        self.restart()

    def restart(self) -> None:
        """Reset to the initial parameters and the first batch."""
        self._prepared.begin()
        self._iterator.reset(0)
        self._rates = BenchmarkRates(self._built.training.optimizer)
        self._epoch = 0

    @property
    def record_bytes(self) -> int:
        """Size of the synthetic records in memory."""
        return sum(field.records.nbytes for field in self._records.fields.values())

    def _new_iterator(self) -> DataIterator:
        return open_iterator(
            self._records,
            self._built.model.batch_size,
            shuffle=True,
            seed=self._built.options.seed,
            loops=self.executor.device.host_loop,
        )

    def first_batches(self) -> dict[str, npt.NDArray[Any]]:
        """Return the distinct batches of the first steps, stacked along a first axis."""
        iterator, specs = self._new_iterator(), self._built.model.inputs
        count = iterator.batches(0)
        stacked = {
            name: np.zeros((count, *spec.shape), spec.dtype)
            for name, spec in specs.items()
            if name != SAMPLE_WEIGHT
        }
        for index in range(count):
            iterator.next_into({name: array[index] for name, array in stacked.items()})
        return stacked

    def losses(self, count: int) -> list[float]:
        """Run `count` training steps and return the mean loss of each."""
        losses = []
        assert self._measure is not None
        for _ in range(count):
            self._measure.reset()
            self.run(self.executor.run)
            losses.append(float(np.asarray(self._measure.values()["loss"])))
        return losses

    def outputs(self, count: int) -> list[list[npt.NDArray[Any]]]:
        """Run `count` steps and return the network's outputs after each."""
        results = []
        for _ in range(count):
            self.run(self.executor.run)
            results.append(list(self.results().values()))
        return results

    def results(self) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the network's outputs after the last step, by name."""
        names = self._built.model.symbol.list_outputs()
        return {name: self.executor.result(self.phase, name).read() for name in names}

    def seconds(self, count: int) -> npt.NDArray[np.float64]:
        """Run `count` steps like the training loop and return the seconds of each."""
        clock = time.perf_counter
        seconds = np.zeros(count)
        with short_switch_interval:
            for index in range(count):
                started = clock()
                self.run(self.executor.run)
                seconds[index] = clock() - started
        return seconds

    def run(self, run: Callable[[str], None], times: npt.NDArray[np.int64] | None = None) -> None:
        """Run one step.

        times: [4], receives the times in ns at its start, after loading, after running and after
        measuring.
        """
        clock = time.monotonic_ns
        started = clock()
        batch = self._iterator.next_into(self._slots.arrays)
        if batch is None:
            self._epoch += 1
            self._iterator.reset(self._epoch)
            batch = self._iterator.next_into(self._slots.arrays)
        assert batch is not None
        self._slots.store()
        filled = clock()
        if self._measure is not None:
            self._schedule.array[...] = self._rates.next()
            self._schedule.store()
        run(self.phase)
        finished = clock()
        if self._measure is not None:
            self._measure.update(batch.valid)
        if times is not None:
            times[:] = started, filled, finished, clock()


class BenchmarkRates:
    """Values of the schedule's tensor by step: an optimizer's rate, and its corrections."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._values = np.zeros((_RATES, 3), np.float32)
        self._step_count = 0

    def next(self) -> npt.NDArray[np.float32]:
        """Return the values of the next step, [3]."""
        position = self._step_count % _RATES
        if position == 0:
            for index in range(_RATES):
                corrections = self._optimizer.corrections(self._step_count + index + 1)
                self._values[index] = (self._optimizer.lr, *corrections)
        self._step_count += 1
        values: npt.NDArray[np.float32] = self._values[position]
        return values
