"""Overhead of a tape: measured on the same calls with empty functions, or predicted from peaks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.machine import Machine
from mxrun.device.cpu.binding import Call, PythonCall
from mxrun.device.cpu.call import NativeCall, loop_call
from mxrun.device.cpu.measurement import NoArguments, empty_loop
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.pool import run_tasks
from mxrun.device.cpu.tape import Tape
from mxrun.device.interface import ProgramCost

# Number of runs; the fastest counts, because other work can only slow a run down.
_RUNS = 200


def tape_cost(tape: Tape) -> ProgramCost:
    """Measure the overhead of `tape`, run as the executor runs it."""
    emptied = Tape([replace(entry, call=_emptied(entry.call)) for entry in tape.entries])
    return ProgramCost(len(tape.entries), _fastest(emptied))


def overheads(tape: Tape, peaks: Machine) -> Mapping[str, float]:
    """Return the seconds of each step's empty calls.

    A call made by the interpreter, or in a loop of calls, counts like a compiled loop's, because
    its own overhead is unknown in advance.
    """
    onednn = library.load()
    seconds: dict[str, float] = defaultdict(float)
    for name, call in ((entry.name, entry.call) for entry in tape.entries):
        function = call.function if isinstance(call, NativeCall) else None
        if onednn and function == onednn.execute:
            seconds[name] += peaks.primitive_s
        else:
            count = call.count if isinstance(call, NativeCall) else 1
            together = function == run_tasks.address
            seconds[name] += count * peaks.loop_s + (peaks.tasks_s if together else 0.0)
    return seconds


def _emptied(call: Call) -> Call:
    """Return a call like this one that does nothing."""
    if isinstance(call, PythonCall):
        return PythonCall(_empty_call)
    return loop_call(empty_loop, NoArguments())


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
