"""Comparison for `bench --against`: mxrun and the baselines alternate on equal work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import Diagnostic, MxrunError, UserError
from mxrun.base.waits import WAIT_NOTICE_S
from mxrun.frontend import ModelDefinition
from mxrun.peers.baseline import BaselineProcess, InstalledBaseline
from mxrun.session.benchmark_loop import Steps
from mxrun.session.equivalence import NotEquivalent, ReferenceOutputs
from mxrun.session.notes import Notify
from mxrun.train.loop import quantiles

_ROUNDS = 10
# Minimum duration of a runner's part of a round: shorter ones measure how threads wake up.
_TURN_MS = 50.0
# Untimed steps at the start of each part, for caches and threads to warm up.
_LEAD = 2
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

    def turn(self, fastest_ms: float) -> int:
        """Return the number of steps of a runner in one round."""
        return max(-(-self.steps // self.rounds), int(_TURN_MS / fastest_ms))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Times in ms [rounds, steps per round] of a baseline and of mxrun."""

    theirs: Times
    ours: Times

    @property
    def ratios(self) -> Times:
        """Ratio of the baseline's median step to mxrun's, by round: above 1 mxrun is faster."""
        ratios: Times = np.median(self.theirs, axis=1) / np.median(self.ours, axis=1)
        return ratios

    def to_json(self) -> dict[str, Any]:
        """Return the steps of both sides, and the ratio: median, quartiles (low, high), all rounds.

        `fastest` is the ratio of the fastest steps, which other processes disturb least.
        """
        low, median, high = np.quantile(self.ratios, (0.25, 0.5, 0.75)).tolist()
        return {
            "step_ms": quantiles(self.theirs.ravel()),
            "mxrun_step_ms": quantiles(self.ours.ravel()),
            "ratio": {
                "median": median,
                "low": low,
                "high": high,
                "fastest": float(self.theirs.min() / self.ours.min()),
                "pairs": self.ratios.tolist(),
            },
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
    ways: Mapping[str, PeerMode] = field(default_factory=dict)
    way: str = ""
    pairs: Pairs | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON.

        It has `status`, `python` and, if the process started, `version`; `reason` if it was not
        measured; `ways`: by mode `precision`, and `ms` and `difference`, or `error`. If it was
        measured it also has `way`, the fastest mode; `step_ms` and `mxrun_step_ms` (median, p90,
        p99, min) of both sides; and `ratio`, baseline / mxrun: over rounds the `median`, the
        quartiles `low` and `high`, and all `pairs`; and of the `fastest` steps.
        """
        result: dict[str, Any] = {
            name: value
            for name in ("status", "python", "version", "reason", "way")
            if (value := getattr(self, name))
        }
        if self.ways:
            result["ways"] = {name: way.to_json() for name, way in self.ways.items()}
        return result | (self.pairs.to_json() if self.pairs else {})


def compare(
    built: ModelDefinition,
    steps: Steps,
    found: Sequence[InstalledBaseline],
    length: Length,
    notify: Notify,
) -> dict[str, PeerResult]:
    """Measure baselines against mxrun's `steps`.

    A baseline whose first losses or outputs differ from mxrun's is not measured; `notify` receives
    a note. Raises UserError for training that baselines do not support, and if no baseline can run
    the network.
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
    return {name: replace(result, pairs=pairs.get(name)) for name, result in results.items()}


def _prepared(
    peer: InstalledBaseline, work: ReferenceOutputs, length: Length, stack: ExitStack
) -> tuple[PeerResult, BaselineProcess | None]:
    """Start a baseline's process, which `stack` closes, and try its modes."""
    if peer.missing:
        return PeerResult("missing", peer.python, reason=peer.missing), None
    if refusal := peer.kind.refusal(work.timed.phase, work.precision):
        return PeerResult("failed", peer.python, reason=refusal), None
    try:
        baseline = BaselineProcess(peer, work.timed.threads)
    except MxrunError as error:
        return PeerResult("failed", peer.python, reason=_short(error)), None
    stack.enter_context(closing(baseline))
    return _searched(baseline, peer, work, length), baseline


def _searched(
    baseline: BaselineProcess, peer: InstalledBaseline, work: ReferenceOutputs, length: Length
) -> PeerResult:
    """Try every mode and leave the fastest open."""
    ways: dict[str, PeerMode] = {}
    best = ""
    for name in peer.kind.ways(work.timed.phase, work.precision, work.on_images):
        ways[name] = way = _tried(baseline, name, work, peer.kind.reads, length)
        if way.error:
            continue
        slower = name
        if not best or way.ms < ways[best].ms:
            slower, best = best, name
        if slower:
            baseline.close_runner(slower)
    if best:
        return PeerResult("measured", peer.python, baseline.version, ways=ways, way=best)
    # A mode with different results takes precedence over one that does not run.
    worst = max(ways.values(), key=lambda way: way.differs)
    status = "different" if worst.differs else "failed"
    return PeerResult(status, peer.python, baseline.version, worst.error, ways)


def _tried(
    baseline: BaselineProcess, way: str, work: ReferenceOutputs, reads: str, length: Length
) -> PeerMode:
    """Open a mode, compare its first results with mxrun's, and time it."""
    try:
        baseline.send_data(work.held(reads, work.checked_network), work.batches)
        baseline.open(work.checked, way)
        difference = work.difference(baseline, way)
        if work.differ:
            baseline.send_data(work.held(reads, work.timed_network), work.batches)
            baseline.open(work.timed, way)
        baseline.measure_round(way, 1, max(0, length.warmup - 1))
        (estimate,) = baseline.measure_round(way, 1, 0)
        count = min(max(int(_SEARCH_MS / estimate), _MIN_TRIAL_STEPS), _MAX_TRIAL_STEPS)
        # Other processes disturb the fastest step least.
        return PeerMode(work.precision, min(baseline.measure_round(way, count, 0)), difference)
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

    def own(count: int) -> Sequence[float]:
        steps.seconds(_LEAD)
        milliseconds: list[float] = (steps.seconds(count) * 1e3).tolist()
        return milliseconds

    def turn_of(name: str) -> Callable[[int], Sequence[float]]:
        return lambda count: baselines[name].measure_round(results[name].way, count, _LEAD)

    runners = {"": own, **{name: turn_of(name) for name in baselines}}
    own_ms = float(np.median(own(_MIN_TRIAL_STEPS)))
    trial_ms = [result.ways[result.way].ms for result in results.values() if result.way]
    count = length.turn(min(own_ms, *trial_ms))
    each_s = length.rounds * count * (own_ms + sum(trial_ms)) / 1e3
    total_s = each_s + length.rounds * len(runners) * _PAUSE_S
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
    words = first.got.strip().rsplit("\n", 1)[-1]
    return f"{first.problem}: {words}" if words else first.problem
