"""Implementation of `bench`: timed steps on synthetic batches, then profiled steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.device import GPU
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.launcher import launched_ranks
from mxrun.base.waits import WAIT_NOTICE_S
from mxrun.config import RunOptions
from mxrun.config.bundled import find_config
from mxrun.device.interface import ProgramCost
from mxrun.device.registry import device_kind
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.inspection.benchmark_loop import Steps
from mxrun.inspection.roofline import Roofline, roofline
from mxrun.options.bench import BenchOptions
from mxrun.preparation.micro_batches import Planned, planned
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.preparation.planning import load
from mxrun.preparation.prepared import preparing
from mxrun.runtime.contention import CoreWaits
from mxrun.runtime.memory_limits import peak_rss_bytes
from mxrun.runtime.profiler import Event, OperatorTime
from mxrun.runtime.ranks import OneRank, RankGroup
from mxrun.train.quantiles import quantiles

if TYPE_CHECKING:
    from mxrun.inspection.comparison import PeerResult
    from mxrun.inspection.parts_benchmark import FunctionTime
    from mxrun.inspection.rank_benchmark import Communication

# Number of profiled steps: enough for an average, and all that a trace shows.
_PROFILED_STEPS = 50


@dataclass(frozen=True, eq=False)
class StepsReport:
    """Times of complete steps in ms."""

    options: BenchOptions
    planned: Planned
    first_step_s: float
    rss_peak_bytes: int
    step_ms: npt.NDArray[np.float64]
    core_wait_share: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON.

        `threads` are those of each context, of which `threads_at_once` have a core.
        """
        built, threads = self.planned.built, self.planned.plan.device.host_threads
        return {
            "name": built.options.name,
            "phase": self.options.phase,
            "batch_size": built.batch_size,
            "contexts": built.contexts,
            "ranks": built.ranks,
            "micro_batches": built.micro_batches,
            "threads": threads,
            "threads_at_once": min(threads, device_kind(built.options.device[0]).cores()),
            "steps": len(self.step_ms),
            "mxrun": {
                "step_ms": quantiles(self.step_ms),
                "core_wait_share": self.core_wait_share,
                "samples_per_s": built.batch_size * len(self.step_ms) / self.step_ms.sum() * 1e3,
                "rss_peak_bytes": self.rss_peak_bytes,
                "first_step_s": self.first_step_s,
            },
        }


@dataclass(frozen=True, eq=False)
class PartsReport(StepsReport):
    """Times of steps on parts of batches, and of the engine's functions in some more of them.

    recorded: those steps and their functions on all ranks, as events of a trace. communication:
    between several ranks.
    """

    functions: Sequence[FunctionTime]
    recorded: Sequence[Event]
    communication: Communication | None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            **super().to_json(),
            "functions": [function.to_json() for function in self.functions],
            "communication": None if self.communication is None else self.communication.to_json(),
        }

    def events(self) -> Iterator[Event]:
        """Yield the events of a trace: steps, and the functions on the tracks of their workers."""
        yield from self.recorded


@dataclass(frozen=True, eq=False)
class BenchReport(StepsReport):
    """Times of complete steps in ms, and of the operators in additional, profiled steps.

    profiled, plain: times of the monotonic clock in ns [profiled steps, 4]: start, after loading,
    after running, after measuring. Plain and profiled steps alternate. tape: overhead of the
    phase's program. roofline: None on a device whose peak speeds are not known.
    """

    profiled: npt.NDArray[np.int64]
    plain: npt.NDArray[np.int64]
    operators: tuple[OperatorTime, ...]
    calls: tuple[Event, ...]
    tape: ProgramCost
    roofline: Roofline | None
    peers: Mapping[str, PeerResult]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON; `share` and `overhead` are fractions, `peers` is by name."""
        profiled, plain = ((t[:, 3] - t[:, 0]) / 1e6 for t in (self.profiled, self.plain))
        batch_ms, tape_ms, measure_ms = np.diff(self.profiled, axis=1).mean(axis=0) / 1e6
        return {
            **super().to_json(),
            "profile": {
                "steps": len(profiled),
                "step_ms": quantiles(profiled),
                # Ratio of the fastest steps, which other processes disturb least.
                "overhead": float(profiled.min() / plain.min() - 1),
                "batch_ms": batch_ms,
                "operators_ms": sum(operator.ms for operator in self.operators),
                "tape_ms": tape_ms,
                "measure_ms": measure_ms,
            },
            "operators": [operator.to_json() for operator in self.operators],
            "tape": self._tape_json(),
            "roofline": None if self.roofline is None else self.roofline.to_json(),
            "peers": {name: peer.to_json() for name, peer in self.peers.items()},
        }

    def _tape_json(self) -> dict[str, Any]:
        """Return the cost of the program itself; `share` is a fraction of the median step."""
        tape = self.tape
        to_us_per_call = 1e6 / tape.calls if tape.calls else 0.0
        return {
            "calls": tape.calls,
            "us_per_call": tape.seconds * to_us_per_call,
            "share": tape.seconds * 1e3 / float(np.median(self.step_ms)),
        }

    def events(self) -> Iterator[Event]:
        """Yield the events of a trace: complete steps, their stages, and every call."""
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
    options: BenchOptions, notify: Notify, started_at: float
) -> BenchReport | PartsReport | None:
    """Measure a config's steps on synthetic records; only the config is read, no file is written.

    A step loads a new batch, runs every operator and, in training, computes loss and metrics, like
    the steps of a run; training runs on all contexts of the config, in micro-batches if the budget
    requires them, and together with the other processes that mpirun has started, of which the first
    reports and the others return None. notify: receives notes about long waits. started_at: start
    of the program on the monotonic clock. Raises UserError for an invalid config, if the plan does
    not fit into memory, if none of the requested baselines can be compared, and for baselines
    beside parts of batches.
    """
    if launched_ranks() == 1:
        return _bench(options, notify, started_at, None)
    # Imported on demand: one process needs nothing of them.
    from mxrun.run.together import by_first, ending_together, launched_group

    launched = launched_group()

    def measured() -> BenchReport | PartsReport:
        with ending_together(launched):
            is_first = launched is None or launched.rank == 0
            return _bench(options, notify if is_first else ignore_note, started_at, launched)

    return by_first(launched, measured)


def _bench(
    options: BenchOptions, notify: Notify, started_at: float, launched: RankGroup | None
) -> BenchReport | PartsReport:
    built = load(find_config(options.config), options.overrides, options.batch)
    training = options.phase == "train"
    ranks: RankGroup = OneRank()
    if training and (built.options.is_distributed or launched is not None):
        from mxrun.run.together import agreed, group_for

        ranks = group_for(built.options, launched) or ranks
        built = agreed(launched, lambda: built.on_ranks(ranks.size))
    elif launched is not None:
        raise UserError(Diagnostic("several processes measure training only", got="--phase infer"))
    if options.against:
        _require_same_device(built.options, options.against)
        if training:
            _require_whole_batches(built.options)
    compare = _comparison(options, notify)
    with preparing(built.options, notify):
        run = planned(built, training, options.threads, notify)
        if run.built.parts > 1:
            return _measured_in_parts(built, run, ranks, options, notify, started_at)
        return _measured(run, options, compare, notify, started_at)


def _require_same_device(options: RunOptions, against: Sequence[str]) -> None:
    """Raise UserError for baselines that do not run on the config's kind of device."""
    kind, _ = options.device
    if kind != GPU:
        return
    # Imported on demand, as in `_comparison`.
    from mxrun.peers.baseline import KINDS

    wrong = [name for name in against if name in KINDS and not KINDS[name].has_cards]
    if wrong:
        problem = f"--against {','.join(wrong)}: runs on the processor, and the config on {kind}"
        place = options.place("context")
        raise UserError(Diagnostic(problem, place, hint="add context=cpu, or compare with torch"))


def _require_whole_batches(options: RunOptions) -> None:
    """Raise UserError for a config that may compute batches in parts, as no baseline does."""
    contexts, (kind, index) = len(options.devices), options.device
    if contexts > 1:
        problem = "--against compares one device with another: baselines have no contexts"
        place, got = options.place("context"), f"{contexts} contexts"
        change = f"context={kind}:{index}"
    elif options.parts_of_batch > 1:
        problem = "--against compares whole batches: baselines have no batch parts"
        place, got = options.key_place("batch_parts"), str(options.parts_of_batch)
        change = "kvstore=local batch_parts=1"
    elif options.memory.micro_batches:
        problem = "--against compares whole batches: baselines have no micro-batches"
        place, got = options.place("memory", "micro_batches"), "true"
        change = "memory.micro_batches=false"
    else:
        return
    hint = f"add {change}, or leave out --against"
    raise UserError(Diagnostic(problem, place, got=got, hint=hint))


def _measured_in_parts(
    whole: ModelDefinition,
    run: Planned,
    ranks: RankGroup,
    options: BenchOptions,
    notify: Notify,
    started_at: float,
) -> PartsReport:
    # Imported on demand: without parts it would delay the first step.
    from mxrun.inspection.parts_benchmark import PartsSteps, function_times

    steps = PartsSteps(whole, run.built, run.plan, ranks)
    steps.run()
    first_step_s = time.monotonic() - started_at
    count = min(options.steps, _PROFILED_STEPS)
    _note_duration(steps.seconds(options.warmup), options.steps + count, notify)
    waits = CoreWaits()
    step_s = steps.seconds(options.steps)
    core_wait_share, rss_peak_bytes = waits.share(), peak_rss_bytes()
    profiled, functions = steps.profile(count)
    recorded, communication = [*profiled, *functions], None
    if ranks.size > 1:
        from mxrun.inspection.rank_benchmark import communication_of, gathered, on_tracks

        by_rank = gathered(ranks, recorded)
        communication = communication_of(by_rank, len(profiled))
        recorded = on_tracks(by_rank)
    return PartsReport(
        options=options,
        planned=run,
        first_step_s=first_step_s,
        rss_peak_bytes=rss_peak_bytes,
        step_ms=step_s * 1e3,
        core_wait_share=core_wait_share,
        functions=function_times(profiled, functions),
        recorded=recorded,
        communication=communication,
    )


def _note_duration(warmup_s: npt.NDArray[np.float64], steps: int, notify: Notify) -> None:
    """Notify if `steps` more steps, each as long as those of the warm-up, take long."""
    if (wait := steps * warmup_s.mean() if len(warmup_s) else 0.0) > WAIT_NOTICE_S:
        notify(f"{steps} steps take about {wait:.0f} s")


def _measured(
    run: Planned,
    options: BenchOptions,
    compare: Callable[[ModelDefinition, Steps, int], Mapping[str, PeerResult]],
    notify: Notify,
    started_at: float,
) -> BenchReport:
    steps = Steps(run.built, run.plan, TRAIN if options.phase == "train" else EVALUATE)
    steps.run(steps.executor.run)
    first_step_s = time.monotonic() - started_at
    count = min(options.steps, _PROFILED_STEPS)
    _note_duration(steps.seconds(options.warmup), options.steps + 2 * count, notify)
    waits = CoreWaits()
    step_s = steps.seconds(options.steps)
    core_wait_share = waits.share()
    rss_peak_bytes = peak_rss_bytes()
    profile = steps.executor.profile(steps.phase, count)
    # Creating the profile may compile code; this step warms the caches again.
    steps.run(steps.executor.run)
    plain, profiled = np.zeros((count, 4), np.int64), np.zeros((count, 4), np.int64)
    for without, within in zip(plain, profiled, strict=True):
        steps.run(steps.executor.run, without)
        steps.run(lambda phase: profile.run(), within)
    operators, calls = profile.operators(), tuple(profile.events())
    peaks = steps.executor.device.peaks(options.remeasure)
    floors = None
    if peaks is not None:
        floors = roofline(steps.executor, steps.phase, calls, float(np.median(step_s)), peaks)
    return BenchReport(
        options=options,
        planned=run,
        first_step_s=first_step_s,
        rss_peak_bytes=rss_peak_bytes,
        step_ms=step_s * 1e3,
        core_wait_share=core_wait_share,
        profiled=profiled,
        plain=plain,
        operators=operators,
        calls=calls,
        tape=steps.executor.programs[steps.phase].cost(),
        roofline=floors,
        peers=compare(run.built, steps, rss_peak_bytes),
    )


def _comparison(
    options: BenchOptions, notify: Notify
) -> Callable[[ModelDefinition, Steps, int], Mapping[str, PeerResult]]:
    """Find the requested baselines and return a function that compares with them."""
    if not options.against:
        return lambda built, steps, peak_bytes: {}
    # Imported on demand: without baselines it would be a tenth of the time to the first step.
    from mxrun.inspection.comparison import Length, compare
    from mxrun.peers.baseline import find

    found = find(options.against, dict(options.peer_python))
    length = Length(options.steps, options.warmup)
    return lambda built, steps, peak_bytes: compare(built, steps, found, length, peak_bytes, notify)
