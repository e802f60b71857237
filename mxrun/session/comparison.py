"""`bench --against`: mxrun and its peers take turns with the same work; ratios are what counts."""

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
from mxrun.train.loop import quantiles

_ROUNDS = 10
# A turn lasts as long at least: shorter ones measure how threads wake up.
_TURN_MS = 50.0
# Steps before each turn that are not timed: caches and threads find each other again.
_LEAD = 2
# Threads that spin after their work have gone to sleep by then.
_PAUSE_S = 0.3
# How long each way to run a network is tried in search of the fastest, and by how many steps.
_SEARCH_MS = 300.0
_MIN_TRIAL_STEPS, _MAX_TRIAL_STEPS = 5, 100

Times = npt.NDArray[np.float64]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Length:
    """How many steps are timed of each contestant, and how many it takes before."""

    steps: int
    warmup: int

    @property
    def rounds(self) -> int:
        """Pairs of turns."""
        return min(_ROUNDS, self.steps)

    def turn(self, fastest_ms: float) -> int:
        """Steps of a turn."""
        return max(-(-self.steps // self.rounds), int(_TURN_MS / fastest_ms))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Times in ms [rounds, steps of a turn] of a peer and of mxrun, turn by turn."""

    theirs: Times
    ours: Times

    @property
    def ratios(self) -> Times:
        """Of each pair of turns the peer's median step over mxrun's: above 1 mxrun is faster."""
        ratios: Times = np.median(self.theirs, axis=1) / np.median(self.ours, axis=1)
        return ratios

    def to_json(self) -> dict[str, Any]:
        """Both sides' steps, and the ratio: median, quartiles (low, high) and every pair.

        `fastest` is the ratio of both sides' fastest steps, which other work disturbs least.
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
    """One way in which a peer can run a network: its fastest trial step in ms, or why it cannot.

    difference: how far its first results were from mxrun's, relatively. differs: whether the error
    is that this was more than rounding.
    """

    precision: str
    ms: float = 0.0
    difference: float = 0.0
    error: str = ""
    differs: bool = False

    def to_json(self) -> dict[str, Any]:
        """The precision with the time and difference, or with the error."""
        if self.error:
            return {"precision": self.precision, "error": self.error}
        return {"precision": self.precision, "ms": self.ms, "difference": self.difference}


@dataclass(frozen=True, eq=False)
class PeerResult:
    """One peer: whether it could run, its ways to run the network, and how the fastest compares.

    status: `measured`, `missing` (not installed), `failed`, or `different`, where its first losses
    or outputs are not mxrun's; reason: why it was not measured.
    """

    status: str
    python: str
    version: str = ""
    reason: str = ""
    ways: Mapping[str, PeerMode] = field(default_factory=dict)
    way: str = ""
    pairs: Pairs | None = None

    def to_json(self) -> dict[str, Any]:
        """The result for machines.

        `status`, `python` and, where it started, `version`; `reason` where it was not measured.
        `ways`: by name `precision`, and `ms` and `difference`, or `error`. Where it was measured
        also `way`, the fastest; `step_ms` and `mxrun_step_ms` (median, p90, p99, min) of both in
        their turns; and `ratio`, peer / mxrun: of pairs of turns `median`, the quartiles `low` and
        `high`, and all `pairs`; of both sides' `fastest` steps.
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
    say: Say,
) -> dict[str, PeerResult]:
    """Measure peers against `steps`, which are mxrun's own.

    A peer whose first losses or outputs are not mxrun's is not measured: `say` hears of it.
    Raises UserError for training that peers cannot be asked for and where not one peer can run the
    network.
    """
    work = ReferenceOutputs.of(built, steps)
    results: dict[str, PeerResult] = {}
    opponents: dict[str, BaselineProcess] = {}
    with ExitStack() as stack:
        for peer in found:
            say(f"{peer.name}: {peer.missing or 'prepares'}")
            result, opponent = _prepared(peer, work, length, stack)
            results[peer.name] = result
            if result.status == "different":
                say(f"{peer.name} is not measured: {result.reason}")
            if result.status == "measured" and opponent is not None:
                opponents[peer.name] = opponent
        if all(result.status in ("missing", "failed") for result in results.values()):
            raise UserError(
                Diagnostic(f"{name} cannot run this network", got=result.reason)
                for name, result in results.items()
            )
        pairs = _alternate(steps, opponents, results, length, say) if opponents else {}
    return {name: replace(result, pairs=pairs.get(name)) for name, result in results.items()}


def _prepared(
    peer: InstalledBaseline, work: ReferenceOutputs, length: Length, stack: ExitStack
) -> tuple[PeerResult, BaselineProcess | None]:
    """A peer's ways to run the network, tried, and its process, which `stack` ends."""
    if peer.missing:
        return PeerResult("missing", peer.python, reason=peer.missing), None
    if refusal := peer.kind.refusal(work.timed.phase, work.precision):
        return PeerResult("failed", peer.python, reason=refusal), None
    try:
        opponent = BaselineProcess(peer, work.timed.threads)
    except MxrunError as error:
        return PeerResult("failed", peer.python, reason=_short(error)), None
    stack.enter_context(closing(opponent))
    return _searched(opponent, peer, work, length), opponent


def _searched(
    opponent: BaselineProcess, peer: InstalledBaseline, work: ReferenceOutputs, length: Length
) -> PeerResult:
    """Try every way, and leave the fastest open."""
    ways: dict[str, PeerMode] = {}
    best = ""
    for name in peer.kind.ways(work.timed.phase, work.precision, work.on_images):
        ways[name] = way = _tried(opponent, name, work, peer.kind.reads, length)
        if way.error:
            continue
        slower = name
        if not best or way.ms < ways[best].ms:
            slower, best = best, name
        if slower:
            opponent.forget(slower)
    if best:
        return PeerResult("measured", peer.python, opponent.version, ways=ways, way=best)
    # That a way computes something else is worse than that one does not run.
    worst = max(ways.values(), key=lambda way: way.differs)
    status = "different" if worst.differs else "failed"
    return PeerResult(status, peer.python, opponent.version, worst.error, ways)


def _tried(
    opponent: BaselineProcess, way: str, work: ReferenceOutputs, reads: str, length: Length
) -> PeerMode:
    """Open a way to run the network, compare its first results, time it."""
    try:
        opponent.hold(work.held(reads, work.checked_network), work.batches)
        opponent.open(work.checked, way)
        difference = work.difference(opponent, way)
        if work.differ:
            opponent.hold(work.held(reads, work.timed_network), work.batches)
            opponent.open(work.timed, way)
        opponent.turn(way, 1, max(0, length.warmup - 1))
        (estimate,) = opponent.turn(way, 1, 0)
        count = min(max(int(_SEARCH_MS / estimate), _MIN_TRIAL_STEPS), _MAX_TRIAL_STEPS)
        # Other work on the machine disturbs the fastest step least.
        return PeerMode(work.precision, min(opponent.turn(way, count, 0)), difference)
    except NotEquivalent as error:
        return PeerMode(work.precision, error=str(error), differs=True)
    except MxrunError as error:
        return PeerMode(work.precision, error=_short(error))


def _alternate(
    steps: Steps,
    opponents: Mapping[str, BaselineProcess],
    results: Mapping[str, PeerResult],
    length: Length,
    say: Say,
) -> dict[str, Pairs]:
    """Rounds in which everybody has a turn; who begins rotates."""

    def own(count: int) -> Sequence[float]:
        steps.seconds(_LEAD)
        milliseconds: list[float] = (steps.seconds(count) * 1e3).tolist()
        return milliseconds

    def turn_of(name: str) -> Callable[[int], Sequence[float]]:
        return lambda count: opponents[name].turn(results[name].way, count, _LEAD)

    contestants = {"": own, **{name: turn_of(name) for name in opponents}}
    own_ms = float(np.median(own(_MIN_TRIAL_STEPS)))
    trial_ms = [result.ways[result.way].ms for result in results.values() if result.way]
    count = length.turn(min(own_ms, *trial_ms))
    each_s = length.rounds * count * (own_ms + sum(trial_ms)) / 1e3
    total_s = each_s + length.rounds * len(contestants) * _PAUSE_S
    if total_s > WAIT_NOTICE_S:
        say(f"{length.rounds} rounds of {count} steps take about {total_s:.0f} s")
    names = list(contestants)
    times = {name: np.zeros((length.rounds, count)) for name in names}
    for index in range(length.rounds):
        first = index % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(_PAUSE_S)
            times[name][index] = contestants[name](count)
    return {name: Pairs(times[name], times[""]) for name in opponents}


def _short(error: MxrunError) -> str:
    """An error in one line: what was asked, and the last of a peer's own words."""
    if not isinstance(error, UserError):
        return str(error).strip().rsplit("\n", 1)[-1]
    first = error.diagnostics[0]
    words = first.got.strip().rsplit("\n", 1)[-1]
    return f"{first.problem}: {words}" if words else first.problem
