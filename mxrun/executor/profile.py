"""Profiling of a phase: its tape with a clock reading after every call.

The calls, their order and hence the results are those of the plain tape. A native loop reads the
clock between two calls without returning to Python. The end of one call is the beginning of the
next, so a reading (20 to 30 ns) is part of the measured time. Everything is allocated before the
first run.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

import numpy as np
import numpy.typing as npt

from mxrun.backend.arguments import Int64s, Integer
from mxrun.backend.jit import call_address, native
from mxrun.executor.tape import Entries, NativeSegment, Tape, segments
from mxrun.graph.graph import Step
from mxrun.operator.kernel import PythonCall
from mxrun.planner.plan import PhasePlan
from mxrun.runtime.profiler import CandidateTime, Event, OperatorTime
from mxrun.runtime.storage import Arena

Nanoseconds = npt.NDArray[np.int64]


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
    entries = call.entries
    call.result[0] = 0
    call_address(call.clock, call.kind, call.now_address, 0, 0, 0, 0)
    last = call.now[0] * 1000000000 + call.now[1]
    for i in range(call.count):
        row = i * 8
        call.begin[i] = last
        status = call_address(
            entries[row],
            entries[row + 2],
            entries[row + 3],
            entries[row + 4],
            entries[row + 5],
            entries[row + 6],
            entries[row + 7],
        )
        call_address(call.clock, call.kind, call.now_address, 0, 0, 0, 0)
        last = call.now[0] * 1000000000 + call.now[1]
        call.end[i] = last
        # A C int occupies only the lower half of the register.
        if entries[row + 1] != 0 and status & 0xFFFFFFFF != 0:
            call.result[0] = i + 1
            break


class Profile:
    """Times of a phase's calls: sums over all runs, and every single time of the first steps.

    recorded_steps: number of first steps whose single times are saved for a trace; the sums cover
    every run. memory: arena that contains the calls' addresses, referenced by the profile.
    """

    def __init__(
        self, phase: PhasePlan, tape: Tape, recorded_steps: int = 0, memory: Arena | None = None
    ) -> None:
        self.steps = 0
        self._memory = memory
        self._phase = phase
        self._entries = tape.entries
        count = len(self._entries)
        self._begin: Nanoseconds = np.zeros(count, np.int64)
        self._end: Nanoseconds = np.zeros(count, np.int64)
        self._elapsed: Nanoseconds = np.zeros(count, np.int64)
        self._totals: Nanoseconds = np.zeros(count, np.int64)
        self._recorded: Nanoseconds = np.zeros((recorded_steps, 2, count), np.int64)
        self._now: Nanoseconds = np.zeros(2, np.int64)
        self._segments = [self._segment(*bounds) for bounds in segments(self._entries)]

    def run(self) -> None:
        """Run the phase once; raises InternalError naming the step whose call failed."""
        for segment in self._segments:
            segment()
        np.subtract(self._end, self._begin, out=self._elapsed)
        np.add(self._totals, self._elapsed, out=self._totals)
        if self.steps < len(self._recorded):
            self._recorded[self.steps, 0] = self._begin
            self._recorded[self.steps, 1] = self._end
        self.steps += 1

    def operators(self) -> tuple[OperatorTime, ...]:
        """Return one record per step that makes a call, in execution order."""
        steps = {step.name: step for step in self._phase.steps}
        totals: dict[str, int] = {}
        for entry, nanoseconds in zip(self._entries, self._totals.tolist(), strict=True):
            totals[entry.name] = totals.get(entry.name, 0) + nanoseconds
        total = sum(totals.values())
        return tuple(
            _operator_time(steps[name], self.steps, nanoseconds, total)
            for name, nanoseconds in totals.items()
        )

    def events(self) -> Iterator[Event]:
        """Yield one event per call of the recorded steps.

        `flops` and `bytes` are those of the operator; `call` distinguishes its calls.
        """
        steps = {step.name: step for step in self._phase.steps}
        calls = [
            (steps[name], f"{number + 1} of {len(group)}")
            for name, group in (
                (name, list(entries))
                for name, entries in groupby(self._entries, key=lambda entry: entry.name)
            )
            for number in range(len(group))
        ]
        for number, (begin, end) in enumerate(self._recorded[: self.steps].tolist()):
            for (step, call), start, stop in zip(calls, begin, end, strict=True):
                yield _event(step, call, number, start, stop)

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
            now=self._now.ctypes.data,
            begin=self._begin[start:].ctypes.data,
            end=self._end[start:].ctypes.data,
        )
        return NativeSegment(self._entries[start:stop], run_entries_timed, arguments)

    def _timed(self, index: int, function: Callable[[], None]) -> Callable[[], None]:
        begin, end, clock = self._begin, self._end, time.monotonic_ns

        def run() -> None:
            started = clock()
            function()
            end[index] = clock()
            begin[index] = started

        return run


def _operator_time(step: Step, calls: int, nanoseconds: int, total: int) -> OperatorTime:
    assert step.prop is not None
    assert step.kernel is not None
    each = nanoseconds / max(1, calls)
    return OperatorTime(
        name=step.name,
        op=step.prop.type_string,
        phase=step.kind.value,
        implementation=step.kernel.implementation,
        calls=calls,
        ms=each / 1e6,
        share=nanoseconds / max(1, total),
        # Operations or bytes per nanosecond equal 10^9 of them per second.
        gflops=step.kernel.flops / max(1.0, each),
        gbytes_per_s=step.kernel.bytes_moved / max(1.0, each),
        candidates=tuple(
            CandidateTime(candidate.implementation, candidate.seconds * 1e3)
            for candidate in step.kernel.candidates
        ),
    )


def _event(step: Step, call: str, number: int, start: int, stop: int) -> Event:
    assert step.prop is not None
    assert step.kernel is not None
    arguments: dict[str, str | int | float] = {
        "op": step.prop.type_string,
        "implementation": step.kernel.implementation,
        "flops": step.kernel.flops,
        "bytes": step.kernel.bytes_moved,
        "call": call,
        "step": number,
    }
    return Event(step.name, step.kind.value, "operators", start, stop - start, arguments)
