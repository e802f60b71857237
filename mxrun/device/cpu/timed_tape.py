"""Tape with a clock reading after every call.

The calls, their order and hence the results are those of the plain tape. A native loop reads the
clock between two calls without returning to Python. The end of one call is the beginning of the
next, so a reading (20 to 30 ns) is part of the measured time. Everything is allocated before the
first run.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from mxrun.codegen.arguments import Int64s, Integer
from mxrun.codegen.intrinsics import call_address
from mxrun.codegen.jit import native
from mxrun.device.cpu.binding import PythonCall
from mxrun.device.cpu.call import made_call
from mxrun.device.cpu.tape import Entries, NativeSegment, Tape, segments
from mxrun.device.interface import Nanoseconds, Program, TimedProgram


class TimedEntries(Entries):
    """Arguments of `run_entries_timed`.

    clock: address of clock_gettime(2), which writes seconds and nanoseconds of the clock `kind` to
    `now` [2], whose address `now_address` is. begin [count], end [count]: nanoseconds between which
    each entry ran.
    """

    clock: Integer
    kind: Integer
    now_address: Integer
    now: Int64s
    begin: Int64s
    end: Int64s


@native
def run_entries_timed(call: TimedEntries) -> None:
    """Run entries like `run_entries`, with the time of each."""
    call.result[0] = 0
    call_address(call.clock, call.kind, call.now_address, 0, 0, 0, 0)
    last = call.now[0] * 1000000000 + call.now[1]
    for i in range(call.count):
        call.begin[i] = last
        status = made_call(call.entries, i)
        call_address(call.clock, call.kind, call.now_address, 0, 0, 0, 0)
        last = call.now[0] * 1000000000 + call.now[1]
        call.end[i] = last
        if status != 0:
            call.result[0] = i + 1
            break


class TimedTape(TimedProgram):
    """Segments of a tape that record the times of their calls."""

    def __init__(self, program: Program, tape: Tape) -> None:
        super().__init__(program)
        self._entries = tape.entries
        self._now: Nanoseconds = np.zeros(2, np.int64)
        self._segments = [self._segment(*bounds) for bounds in segments(tape.entries)]

    def run(self) -> None:
        """Run every call once; raises InternalError naming the step whose call failed."""
        for segment in self._segments:
            segment()

    def _segment(self, start: int, stop: int) -> Callable[[], None]:
        call = self._entries[start].call
        if isinstance(call, PythonCall):
            return self._timed(start, call.function)
        clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
        arguments = partial(
            TimedEntries,
            clock=clock,
            kind=time.CLOCK_MONOTONIC,
            now_address=self._now.ctypes.data,
            now=self._now,
            begin=self.begin[start:],
            end=self.end[start:],
        )
        return NativeSegment(self._entries[start:stop], run_entries_timed, arguments)

    def _timed(self, index: int, function: Callable[[], None]) -> Callable[[], None]:
        begin, end, clock = self.begin, self.end, time.monotonic_ns

        def run() -> None:
            started = clock()
            function()
            end[index] = clock()
            begin[index] = started

        return run
