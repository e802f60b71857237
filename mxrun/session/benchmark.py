"""`bench`: whole steps on made-up batches, then the same steps with a clock beside every call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.build import Built, Model
from mxrun.executor.executor import Executor
from mxrun.graph.compile import EVALUATE, TRAIN
from mxrun.graph.plan import Plan
from mxrun.io.dataset import Dataset, Field
from mxrun.io.draw import draw_bytes, draw_integers
from mxrun.io.iterator import ArrayIterator, DataIterator
from mxrun.profiler import Event, OperatorTime
from mxrun.runtime.storage import peak_resident_bytes
from mxrun.session.build import check_fits, load, plan_for
from mxrun.session.values import clear, draw
from mxrun.train.loop import quantiles, slots
from mxrun.train.measure import Measure, Phase

# Steps with a clock beside every call: enough for an average, and all that a trace shows.
_PROFILED_STEPS = 50
# Batches that differ, as far as their bytes stay below the second figure: more than caches hold.
_BATCHES = 8
_RECORD_BYTES = 256 << 20
# Of what integers count that no reader limits.
_FEW = 10
# Waits shorter than this need no word.
_PATIENCE_S = 2.0


@dataclass(frozen=True)
class BenchRequest:
    """What is measured: `phase` train or infer, `steps` whole steps after `warmup` others.

    batch, threads: in place of the config's.
    """

    phase: str = "train"
    batch: int | None = None
    threads: int | None = None
    steps: int = 100
    warmup: int = 10


@dataclass(frozen=True, eq=False)
class BenchReport:
    """Times of whole steps in ms, and of the operators in further, profiled steps.

    profiled, plain: nanoseconds of the monotonic clock [profiled steps, 4], when each began, had
        its batch, had run and was measured; plain steps took turns with those profiled.
    """

    name: str
    request: BenchRequest
    batch_size: int
    threads: int
    first_step_s: float
    rss_peak_bytes: int
    step_ms: npt.NDArray[np.float64]
    profiled: npt.NDArray[np.int64]
    plain: npt.NDArray[np.int64]
    operators: tuple[OperatorTime, ...]
    calls: tuple[Event, ...]

    def to_json(self) -> dict[str, Any]:
        """The report for machines; `share` and `overhead` are fractions."""
        profiled, plain = ((t[:, 3] - t[:, 0]) / 1e6 for t in (self.profiled, self.plain))
        batch_ms, tape_ms, measure_ms = np.diff(self.profiled, axis=1).mean(axis=0) / 1e6
        return {
            "name": self.name,
            "phase": self.request.phase,
            "batch_size": self.batch_size,
            "threads": self.threads,
            "steps": len(self.step_ms),
            "mxrun": {
                "step_ms": quantiles(self.step_ms),
                "samples_per_s": self.batch_size * len(self.step_ms) / self.step_ms.sum() * 1e3,
                "rss_peak_bytes": self.rss_peak_bytes,
                "first_step_s": self.first_step_s,
            },
            "profile": {
                "steps": len(profiled),
                "step_ms": quantiles(profiled),
                # The fastest step of each kind: other work on the machine disturbs it least.
                "overhead": float(profiled.min() / plain.min() - 1),
                "batch_ms": batch_ms,
                "operators_ms": sum(operator.ms for operator in self.operators),
                "tape_ms": tape_ms,
                "measure_ms": measure_ms,
            },
            "operators": [operator.to_json() for operator in self.operators],
            "peers": {},
        }

    def events(self) -> Iterator[Event]:
        """The profiled steps for a trace: whole steps, their stages, and every call."""
        for number, times in enumerate(self.plain.tolist()):
            arguments = {"step": number}
            name = "step without clocks"
            yield Event(name, "step", "steps", times[0], times[3] - times[0], arguments)
        for number, times in enumerate(self.profiled.tolist()):
            arguments = {"step": number}
            yield Event("step", "step", "steps", times[0], times[3] - times[0], arguments)
            for index, name in enumerate(("batch", "operators", "loss and metrics")):
                start, stop = times[index : index + 2]
                yield Event(name, "stage", "stages", start, stop - start, arguments)
        yield from self.calls


def bench(
    path: str | Path,
    overrides: Sequence[str],
    request: BenchRequest,
    say: Callable[[str], None],
    started_at: float,
) -> BenchReport:
    """Measure a config's steps on made-up records; no file is read but the config, none written.

    A step takes a fresh batch into the plan, runs every operator and, in training, follows loss and
    metrics, as a run's steps do. `say` hears of long waits; `started_at` is the process's start on
    the monotonic clock. Raises UserError for a config that is wrong or does not fit into memory.
    """
    built = load(path, overrides, request.batch)
    plan = plan_for(built, training=request.phase == "train", threads=request.threads)
    check_fits(plan)
    steps = _Steps(built, plan, TRAIN if request.phase == "train" else EVALUATE)
    steps.run(steps.executor.run)
    first_step_s = time.monotonic() - started_at
    count = min(request.steps, _PROFILED_STEPS)
    warmup_s = steps.seconds(request.warmup)
    total = request.steps + 2 * count
    if (wait := total * warmup_s.mean() if request.warmup else 0.0) > _PATIENCE_S:
        say(f"{total} steps take about {wait:.0f} s")
    step_s = steps.seconds(request.steps)
    rss_peak_bytes = peak_resident_bytes()
    profile = steps.executor.profile(steps.phase, count)
    # Making the profile may have compiled something; caches are to be as warm as before.
    steps.run(steps.executor.run)
    plain, profiled = np.zeros((count, 4), np.int64), np.zeros((count, 4), np.int64)
    for without, within in zip(plain, profiled, strict=True):
        steps.run(steps.executor.run, without)
        steps.run(lambda phase: profile.run(), within)
    return BenchReport(
        name=built.config.name,
        request=request,
        batch_size=built.model.batch_size,
        threads=plan.threads,
        first_step_s=first_step_s,
        rss_peak_bytes=rss_peak_bytes,
        step_ms=step_s * 1e3,
        profiled=profiled,
        plain=plain,
        operators=profile.operators(),
        calls=tuple(profile.events()),
    )


class _Steps:
    """Endless steps of one phase over a few made-up batches."""

    def __init__(self, built: Built, plan: Plan, phase: str) -> None:
        self.phase = phase
        self.executor = Executor(plan)
        clear(self.executor, built)
        draw(self.executor, built)
        self._iterator: DataIterator = ArrayIterator(
            made_up_records(built.model),
            built.model.batch_size,
            shuffle=True,
            seed=built.config.seed,
            threads=plan.threads,
        )
        self._slots = slots(self.executor, self._iterator)
        self._epoch = 0
        self._measure = None
        if phase == TRAIN:
            measured = Phase(TRAIN, self._iterator, built.training.metrics)
            self._measure = Measure(self.executor, measured, built.model.losses)

    def seconds(self, count: int) -> npt.NDArray[np.float64]:
        """Take `count` steps; what each took."""
        clock = time.perf_counter
        seconds = np.zeros(count)
        for index in range(count):
            begun = clock()
            self.run(self.executor.run)
            seconds[index] = clock() - begun
        return seconds

    def run(self, run: Callable[[str], None], times: npt.NDArray[np.int64] | None = None) -> None:
        """One step; `times` [4] receives when it began, had its batch, had run, was measured."""
        clock = time.monotonic_ns
        begun = clock()
        batch = self._iterator.next_into(self._slots)
        if batch is None:
            self._epoch += 1
            self._iterator.reset(self._epoch)
            batch = self._iterator.next_into(self._slots)
        assert batch is not None
        filled = clock()
        run(self.phase)
        finished = clock()
        if self._measure is not None:
            self._measure.update(batch.valid)
        if times is not None:
            times[:] = begun, filled, finished, clock()


def made_up_records(model: Model) -> Dataset:
    """Random records of the network's input shapes: floats of 0..1, numbers that all readers know.

    Labels are below the number of classes of every loss that reads them, ids below the rows of
    every table that they look up.
    """
    batch_bytes = sum(spec.nbytes for spec in model.inputs.values())
    batches = max(1, min(_BATCHES, _RECORD_BYTES // batch_bytes))
    limits = _limits(model)
    fields = {}
    for name, spec in model.records.items():
        stream, shape = f"bench/{name}", (batches * model.batch_size, *spec.shape)
        if spec.dtype == "float32" and name not in limits:
            fields[name] = Field(draw_bytes(0, stream, shape), 1 / 255)
        else:
            numbers = draw_integers(0, stream, shape, limits.get(name, _FEW))
            fields[name] = Field(numbers.astype(spec.dtype))
    return Dataset("made up", fields)


def _limits(model: Model) -> dict[str, int]:
    """For inputs that count something, by how many they go."""
    limits: dict[str, int] = {}
    for loss in model.losses:
        seen = loss.classification
        if seen is not None and seen.labelled:
            limits[loss.label] = min(seen.classes, limits.get(loss.label, seen.classes))
    for node in model.symbol.nodes:
        if node.operator == "Embedding" and node.prop is not None:
            rows = node.prop.parameters.input_dim
            name = node.inputs[node.prop.list_arguments().index("data")].name
            limits[name] = min(rows, limits.get(name, rows))
    return limits
