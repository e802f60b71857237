"""Complete training steps on parts of synthetic batches, as `bench` measures them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.executor.switch_interval import short_switch_interval
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import ACCUMULATE, TRAIN
from mxrun.inspection.benchmark_loop import BenchmarkRates
from mxrun.io.loading.open import open_iterator
from mxrun.planner.plan import Plan
from mxrun.preparation.prepared import Prepared
from mxrun.preparation.random_records import synthetic_records
from mxrun.runtime.engine.default import engine_of
from mxrun.runtime.profiler import Event
from mxrun.runtime.ranks import RankGroup
from mxrun.train.agreement import Agreement
from mxrun.train.data_parallel import DataParallel, SingleContext, StepRunner
from mxrun.train.measure import Phase
from mxrun.train.replica import Replica


@dataclass(frozen=True)
class FunctionTime:
    """Times of one function of a step in ms: means over steps.

    calls: in one step; a function that every context runs has one for each. ms: of one call.
    start_ms, end_ms: its first start and its last end, from the beginning of the step.
    """

    name: str
    calls: float
    ms: float
    start_ms: float
    end_ms: float

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON."""
        return asdict(self)


class PartsSteps:
    """Endless training steps on batches in parts, as the training loop takes them.

    The parts are those of all contexts of a config, micro-batches, or batch parts.

    A step uses the config's learning rate without its schedule, and the optimizer's corrections.
    """

    def __init__(
        self, whole: ModelDefinition, built: ModelDefinition, plan: Plan, ranks: RankGroup
    ) -> None:
        """`whole`: the run with undivided batches. `built`, `plan`: for a part. ranks: processes
        that take the steps together.
        """
        prepared = Prepared.of(built, plan)
        group = prepared.group
        self._iterator = open_iterator(
            synthetic_records(whole.model),
            built.batch_size,
            shuffle=True,
            seed=built.options.seed,
            loops=group.executors[0].device.host_loop,
            parts=built.parts,
            rank=ranks.rank,
            ranks=ranks.size,
        )
        training, losses = built.training, built.model.measured
        partial = (ACCUMULATE,)
        measured = Phase(TRAIN, self._iterator, training.metrics, partial, scale=training.scale)
        first = Replica(group.executors[0], losses, measured, None)
        others = [Replica(each, losses, measured, None, first) for each in group.executors[1:]]
        self._replicas = [first, *others]
        prepared.begin()
        for replica in self._replicas:
            replica.begin()
        self._engine = engine_of(built.options.engine)
        self._runner: StepRunner
        if built.batch_parts > 1:
            # Imported on demand: other runs need nothing of the stores.
            from mxrun.train.batch_parts import BatchParts

            self._runner = BatchParts(self._engine, first, group, Agreement(ranks, {}))
        elif others:
            self._runner = DataParallel(self._engine, self._replicas, group)
        else:
            self._runner = SingleContext(self._engine, first, first.executor.run)
        self._rates = BenchmarkRates(built.training.optimizer)
        self._epoch, self._left, self._step = 0, self._iterator.batches(0), 0

    def run(self) -> None:
        """Run one step."""
        if not self._left:
            self._epoch += 1
            self._iterator.reset(self._epoch)
            self._left = self._iterator.batches(self._epoch)
        self._left -= 1
        self._step += 1
        rates, parts = self._rates.next(), self._iterator.parts
        for replica in self._replicas:
            replica.set_rates(rates)
            replica.clear_sums()
        count = len(self._replicas)
        for begin in range(0, parts, count):
            for part, replica in enumerate(self._replicas, begin):
                self._runner.load(replica, self._iterator, self._step, part, weighted=False)
            self._runner.train(TRAIN if begin + count == parts else ACCUMULATE)

    def seconds(self, count: int) -> npt.NDArray[np.float64]:
        """Run `count` steps like the training loop and return the seconds of each."""
        clock = time.perf_counter
        seconds = np.zeros(count)
        with short_switch_interval:
            for index in range(count):
                started = clock()
                self.run()
                seconds[index] = clock() - started
        return seconds

    def profile(self, count: int) -> tuple[list[Event], list[Event]]:
        """Run `count` steps and return them, and the functions of the engine in each, as events."""
        functions, steps = list[Event](), list[Event]()
        self._engine.record(functions.append)
        try:
            with short_switch_interval:
                for number in range(count):
                    start = time.monotonic_ns()
                    self.run()
                    duration = time.monotonic_ns() - start
                    steps.append(Event("step", "step", "steps", start, duration, {"step": number}))
        finally:
            self._engine.record(None)
        return steps, functions


def function_times(steps: Sequence[Event], functions: Sequence[Event]) -> list[FunctionTime]:
    """Return the mean times of every function over steps, in the order of their first starts."""
    starts = np.array([step.start_ns for step in steps])
    spans: dict[str, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in functions:
        step = int(np.searchsorted(starts, event.start_ns, side="right")) - 1
        spans[event.name][step].append(event)
    found = []
    for name, by_step in spans.items():
        calls = [event for events in by_step.values() for event in events]
        first = [
            min(event.start_ns for event in events) - starts[step]
            for step, events in by_step.items()
        ]
        last = [
            max(event.start_ns + event.duration_ns for event in events) - starts[step]
            for step, events in by_step.items()
        ]
        found.append(
            FunctionTime(
                name,
                calls=len(calls) / len(steps),
                ms=float(np.mean([event.duration_ns for event in calls])) / 1e6,
                start_ms=float(np.mean(first)) / 1e6,
                end_ms=float(np.mean(last)) / 1e6,
            )
        )
    return sorted(found, key=lambda each: each.start_ms)
