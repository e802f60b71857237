"""Overhead of a tape: measured on the same calls with empty functions, or predicted from peaks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.machine import Machine
from mxrun.device.cpu.binding import PythonCall
from mxrun.device.cpu.call import NativeCall, loop_call
from mxrun.device.cpu.measurement import NoArguments, empty_loop
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.pool import run_tasks
from mxrun.device.cpu.tape import Tape, TapeEntry
from mxrun.device.cpu.team import openmp, team
from mxrun.device.interface import ProgramCost

# Number of runs; the fastest counts, because other work can only slow a run down.
_RUNS = 200


def tape_cost(tape: Tape) -> ProgramCost:
    """Measure the overhead of `tape`, run as the executor runs it."""
    switches = sum(map(_switches, tape.entries))
    with team(tape.threads):
        seconds = _fastest(Tape([_emptied(entry, True) for entry in tape.entries]))
        unswitched_s = _fastest(Tape([_emptied(entry, False) for entry in tape.entries]))
    return ProgramCost(len(tape.entries), switches, seconds, unswitched_s)


def overheads(tape: Tape, peaks: Machine) -> Mapping[str, float]:
    """Return the seconds of each step's empty calls.

    A call made by the interpreter, or in a loop of calls, counts like a compiled loop's, because
    its own overhead is unknown in advance.
    """
    runtime, onednn = openmp(), library.load()
    size = peaks.threads
    seconds: dict[str, float] = defaultdict(float)
    for name, call in ((entry.name, entry.call) for entry in tape.entries):
        function = call.function if isinstance(call, NativeCall) else None
        if isinstance(call, NativeCall) and runtime and function == runtime.set_threads:
            (size,) = call.arguments
        elif onednn and function == onednn.execute:
            seconds[name] += peaks.primitive_s + (peaks.team_s if size > 1 else 0.0)
        else:
            together = function == run_tasks.address or (
                runtime is not None and function == runtime.parallel
            )
            count = call.count if isinstance(call, NativeCall) else 1
            seconds[name] += count * peaks.loop_s + (peaks.team_s if together else 0.0)
    return seconds


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
    return replace(entry, call=loop_call(empty_loop, NoArguments()))


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
