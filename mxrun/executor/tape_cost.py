"""Overhead of a tape, measured on the same sequence of calls with empty functions."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from mxrun.backend import jit
from mxrun.backend.call import NativeCall
from mxrun.backend.team import openmp, team
from mxrun.executor.tape import Tape, TapeEntry
from mxrun.operator.kernel import PythonCall
from mxrun.runtime.measurement import NoArguments, empty_loop

# Number of runs; the fastest counts, because other work can only slow a run down.
_RUNS = 200


@dataclass(frozen=True)
class TapeCost:
    """Overhead of one run of a tape.

    calls: number of calls, of which `switches` set the compute team's size. seconds: time of all
    calls if only those that set the team do their work. unswitched_s: time if none does.
    """

    calls: int
    switches: int
    seconds: float
    unswitched_s: float


def tape_cost(tape: Tape, threads: int) -> TapeCost:
    """Measure the overhead of `tape`, run as the executor runs it, for a team of `threads`."""
    switches = sum(map(_switches, tape.entries))
    with team(threads):
        seconds = _fastest(Tape([_emptied(entry, True) for entry in tape.entries]))
        unswitched_s = _fastest(Tape([_emptied(entry, False) for entry in tape.entries]))
    return TapeCost(len(tape.entries), switches, seconds, unswitched_s)


def _switches(entry: TapeEntry) -> bool:
    runtime, call = openmp(), entry.call
    if runtime is None or not isinstance(call, NativeCall):
        return False
    return call.function == runtime.set_threads


def _emptied(entry: TapeEntry, switching: bool) -> TapeEntry:
    """Return the entry with an empty function; if `switching`, a call that sets the team stays."""
    if isinstance(entry.call, PythonCall):
        return replace(entry, call=PythonCall(_empty_call))
    if switching and _switches(entry):
        return entry
    return replace(entry, call=jit.bind(empty_loop, NoArguments(), 1))


def _empty_call() -> None:
    """Replace the Python function of an entry in an emptied tape."""


def _fastest(tape: Tape) -> float:
    clock = time.perf_counter
    best = float("inf")
    for _ in range(_RUNS):
        begun = clock()
        tape.run()
        best = min(best, clock() - begun)
    return best
