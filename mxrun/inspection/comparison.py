"""Comparison for `bench --against`: mxrun and the baselines alternate on equal work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, MxrunError, UserError
from mxrun.base.waits import WAIT_NOTICE_S
from mxrun.frontend import ModelDefinition
from mxrun.inspection.benchmark_loop import Steps
from mxrun.inspection.equivalence import NotEquivalent, ReferenceOutputs
from mxrun.peers.baseline import BaselineProcess, InstalledBaseline
from mxrun.preparation.notes import Notify
from mxrun.train.quantiles import quantiles

_ROUNDS = 10
# Minimum duration of a runner's part of a round: shorter ones measure how threads wake up.
_MIN_PART_MS = 50.0
# Untimed steps at the start of each part, for caches and threads to warm up.
_LEAD_STEPS = 2
# Pause after which spinning threads of the previous runner are asleep.
_PAUSE_S = 0.3
# Duration of the trial of each mode, and limits of its number of steps.
_SEARCH_MS = 300.0
_MIN_TRIAL_STEPS, _MAX_TRIAL_STEPS = 5, 100

Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Length:
    """Number of timed steps per runner, and of warm-up steps before."""

    steps: int
    warmup: int

    @property
    def rounds(self) -> int:
        """Number of rounds, in each of which every runner is timed once."""
        return min(_ROUNDS, self.steps)

    def steps_per_round(self, fastest_ms: float) -> int:
        """Return the number of steps of a runner in one round."""
        return max(-(-self.steps // self.rounds), int(_MIN_PART_MS / fastest_ms))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Times in ms [rounds, steps per round] of a baseline and of mxrun."""

    baseline_ms: Times
    mxrun_ms: Times

    @property
    def ratios(self) -> Times:
        """Ratio of the baseline's median step to mxrun's, by round: above 1 mxrun is faster."""
        ratios: Times = np.median(self.baseline_ms, axis=1) / np.median(self.mxrun_ms, axis=1)
        return ratios

    def to_json(self) -> dict[str, Any]:
        """Return the steps of both sides, and the ratio: median, quartiles (low, high), all rounds.

        `fastest` is the ratio of the fastest steps, which other processes disturb least.
        """
        low, median, high = np.quantile(self.ratios, (0.25, 0.5, 0.75)).tolist()
        return {
            "step_ms": quantiles(self.baseline_ms.ravel()),
            "mxrun_step_ms": quantiles(self.mxrun_ms.ravel()),
            "ratio": {
                "median": median,
                "low": low,
                "high": high,
                "fastest": float(self.baseline_ms.min() / self.mxrun_ms.min()),
                "pairs": self.ratios.tolist(),
            },
        }


@dataclass(frozen=True)
class PeakMemory:
    """Peak resident bytes of the processes of a baseline and of mxrun, without the batches.

    The synthetic batches, which a run does not have, are subtracted: baselines hold them as floats,
    mxrun as bytes.
    """

    baseline_bytes: int
    mxrun_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return both sizes and the ratio baseline / mxrun."""
        return {
            "peak_rss_bytes": self.baseline_bytes,
            "mxrun_peak_rss_bytes": self.mxrun_bytes,
            "ratio": self.baseline_bytes / self.mxrun_bytes,
        }


@dataclass(frozen=True)
class PeerMode:
    """Mode in which a baseline can run a network: its fastest trial step in ms, or the error.

    difference: relative difference of its first results from mxrun's. differs: whether the error is
    a difference beyond rounding.
    """

    precision: str
    ms: float = 0.0
    difference: float = 0.0
    error: str = ""
    differs: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the precision with the time and difference, or with the error."""
        if self.error:
            return {"precision": self.precision, "error": self.error}
        return {"precision": self.precision, "ms": self.ms, "difference": self.difference}


@dataclass(frozen=True, eq=False)
class PeerResult:
    """Result of one baseline: its status, its modes, and the times of the fastest mode.

    status: `measured`, `missing` (not installed), `failed`, or `different` if its first losses or
    outputs differ from mxrun's. reason: why it was not measured.
    """

    status: str
    python: str
    version: str = ""
    reason: str = ""
    modes: Mapping[str, PeerMode] = field(default_factory=dict)
    mode: str = ""
    pairs: Pairs | None = None
    memory: PeakMemory | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON.

        It has `status`, `python` and, if the process started, `version`; `reason` if it was not
        measured; `modes`: by mode `precision`, and `ms` and `difference`, or `error`. If it was
        measured it also has `mode`, the fastest one; `step_ms` and `mxrun_step_ms` (median, p90,
        p99, min) of both sides; and `ratio`, baseline / mxrun: over rounds the `median`, the
        quartiles `low` and `high`, and all `pairs`; and of the `fastest` steps; and `memory`:
        `peak_rss_bytes` and `mxrun_peak_rss_bytes` with their `ratio`.
        """
        result: dict[str, Any] = {
            name: value
            for name in ("status", "python", "version", "reason")
            if (value := getattr(self, name))
        }
        if self.mode:
            result["mode"] = self.mode
        if self.modes:
            result["modes"] = {name: mode.to_json() for name, mode in self.modes.items()}
        if self.memory is not None:
            result["memory"] = self.memory.to_json()
        return result | (self.pairs.to_json() if self.pairs else {})


def compare(
    built: ModelDefinition,
    steps: Steps,
    found: Sequence[InstalledBaseline],
    length: Length,
    peak_rss_bytes: int,
    notify: Notify,
) -> dict[str, PeerResult]:
    """Measure baselines against mxrun's `steps`.

    peak_rss_bytes: of this process, while it ran nothing but `steps`. A baseline whose first losses
    or outputs differ from mxrun's is not measured; `notify` receives a note. Raises UserError for
    training that baselines do not support, and if no baseline can run the network.
    """
    work = ReferenceOutputs.of(built, steps)
    results: dict[str, PeerResult] = {}
    baselines: dict[str, BaselineProcess] = {}
    with ExitStack() as stack:
        for peer in found:
            notify(f"{peer.name}: {peer.missing or 'preparing'}")
            result, baseline = _prepared(peer, work, length, stack)
            results[peer.name] = result
            if result.status == "different":
                notify(f"{peer.name} is not measured: {result.reason}")
            if result.status == "measured" and baseline is not None:
                baselines[peer.name] = baseline
        if all(result.status in ("missing", "failed") for result in results.values()):
            raise UserError(
                Diagnostic(f"{name} cannot run this network", got=result.reason)
                for name, result in results.items()
            )
        pairs = _alternate(steps, baselines, results, length, notify) if baselines else {}
        memory = {
            name: PeakMemory(
                baseline.peak_rss_bytes() - sum(array.nbytes for array in work.batches.values()),
                peak_rss_bytes - steps.record_bytes,
            )
            for name, baseline in baselines.items()
        }
    return {
        name: replace(result, pairs=pairs.get(name), memory=memory.get(name))
        for name, result in results.items()
    }


def _prepared(
    peer: InstalledBaseline, work: ReferenceOutputs, length: Length, stack: ExitStack
) -> tuple[PeerResult, BaselineProcess | None]:
    """Try a baseline's modes; return its process for the fastest one, which `stack` closes.

    That process runs nothing but this mode, so that its peak memory is that of the mode.
    """
    if peer.missing:
        return PeerResult("missing", peer.python, reason=peer.missing), None
    if refusal := peer.kind.refusal(work.timed.phase, work.precision):
        return PeerResult("failed", peer.python, reason=refusal), None
    try:
        baseline = BaselineProcess(peer, work.timed.threads)
    except MxrunError as error:
        return PeerResult("failed", peer.python, reason=_short(error)), None
    with ExitStack() as trial:
        trial.enter_context(closing(baseline))
        result = _searched(baseline, peer, work, length)
        if not result.mode:
            return result, None
        if len(result.modes) == 1 and not work.differ:
            stack.push(trial.pop_all())
            return result, baseline
    alone = BaselineProcess(peer, work.timed.threads)
    stack.enter_context(closing(alone))
    _open_timed(alone, result.mode, work, peer.kind.reads)
    alone.measure_round(1, max(0, length.warmup - 1))
    return result, alone


def _open_timed(baseline: BaselineProcess, mode: str, work: ReferenceOutputs, reads: str) -> None:
    """Open the runner of the timed work."""
    variables = work.initial_state(reads, work.timed_network)
    baseline.open(work.timed, mode, variables, work.batches)


def _searched(
    baseline: BaselineProcess, peer: InstalledBaseline, work: ReferenceOutputs, length: Length
) -> PeerResult:
    """Try every mode."""
    modes: dict[str, PeerMode] = {}
    best = ""
    for name in peer.kind.modes(work.timed.phase, work.precision, work.on_images):
        modes[name] = mode = _tried(baseline, name, work, peer.kind.reads, length)
        if not mode.error and (not best or mode.ms < modes[best].ms):
            best = name
    if best:
        return PeerResult("measured", peer.python, baseline.version, modes=modes, mode=best)
    # A mode with different results takes precedence over one that does not run.
    worst = max(modes.values(), key=lambda mode: mode.differs)
    status = "different" if worst.differs else "failed"
    return PeerResult(status, peer.python, baseline.version, reason=worst.error, modes=modes)


def _tried(
    baseline: BaselineProcess, mode: str, work: ReferenceOutputs, reads: str, length: Length
) -> PeerMode:
    """Open a mode, compare its first results with mxrun's, and time it."""
    try:
        variables = work.initial_state(reads, work.checked_network)
        baseline.open(work.checked, mode, variables, work.batches)
        difference = work.difference(baseline, mode)
        if work.differ:
            _open_timed(baseline, mode, work, reads)
        baseline.measure_round(1, max(0, length.warmup - 1))
        (estimate,) = baseline.measure_round(1, 0)
        count = min(max(int(_SEARCH_MS / estimate), _MIN_TRIAL_STEPS), _MAX_TRIAL_STEPS)
        # Other processes disturb the fastest step least.
        return PeerMode(work.precision, min(baseline.measure_round(count, 0)), difference)
    except NotEquivalent as error:
        return PeerMode(work.precision, error=str(error), differs=True)
    except MxrunError as error:
        return PeerMode(work.precision, error=_short(error))


def _alternate(
    steps: Steps,
    baselines: Mapping[str, BaselineProcess],
    results: Mapping[str, PeerResult],
    length: Length,
    notify: Notify,
) -> dict[str, Pairs]:
    """Time all runners in alternation; the one that begins a round rotates."""

    def time_mxrun(count: int) -> Sequence[float]:
        steps.seconds(_LEAD_STEPS)
        milliseconds: list[float] = (steps.seconds(count) * 1e3).tolist()
        return milliseconds

    def timer_of(name: str) -> Callable[[int], Sequence[float]]:
        return lambda count: baselines[name].measure_round(count, _LEAD_STEPS)

    runners = {"": time_mxrun, **{name: timer_of(name) for name in baselines}}
    mxrun_ms = float(np.median(time_mxrun(_MIN_TRIAL_STEPS)))
    trial_ms = [result.modes[result.mode].ms for result in results.values() if result.mode]
    count = length.steps_per_round(min(mxrun_ms, *trial_ms))
    timed_s = length.rounds * count * (mxrun_ms + sum(trial_ms)) / 1e3
    total_s = timed_s + length.rounds * len(runners) * _PAUSE_S
    if total_s > WAIT_NOTICE_S:
        notify(f"{length.rounds} rounds of {count} steps take about {total_s:.0f} s")
    names = list(runners)
    times = {name: np.zeros((length.rounds, count)) for name in names}
    for index in range(length.rounds):
        first = index % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(_PAUSE_S)
            times[name][index] = runners[name](count)
    return {name: Pairs(times[name], times[""]) for name in baselines}


def _short(error: MxrunError) -> str:
    """Return an error in one line: the request, and the last line of the baseline's message."""
    if not isinstance(error, UserError):
        return str(error).strip().rsplit("\n", 1)[-1]
    first = error.diagnostics[0]
    message = first.got.strip().rsplit("\n", 1)[-1]
    return f"{first.problem}: {message}" if message else first.problem
