"""Tape: a program as a frozen list of calls, run by one native loop.

Consecutive native calls form one segment. The loop runs a segment without the interpreter lock: 0.5
us a call, and no other Python thread runs in between. A ctypes call would release the lock each
time. Python-bodied operators run between the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.codegen.arguments import Arguments, Int64s, Integer
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import NativeFunction, inlined, native
from mxrun.device.cpu.binding import (
    Call,
    PrepareBody,
    PythonCall,
    calls_of,
    prepared_body,
    start_call,
)
from mxrun.device.cpu.call import NativeCall, TaskThreads, made_call, pack
from mxrun.device.interface import ProgramStep


@dataclass(frozen=True)
class TapeEntry:
    """One call and the name of its step."""

    name: str
    call: Call


def entries_of(
    steps: Sequence[ProgramStep], threads: int, index: int, prepare: PrepareBody = prepared_body
) -> list[TapeEntry]:
    """Return the calls of all steps on device `index`, of which `threads` may work."""
    workers = TaskThreads(threads, index)
    calls = [
        TapeEntry(step.name, call)
        for step in steps
        for launch in step.launches
        for call in calls_of(launch, workers, prepare=prepare)
    ]
    if calls:
        calls[:0] = [TapeEntry(calls[0].name, call) for call in start_call()]
    return calls


class Tape:
    """Frozen sequence of calls."""

    def __init__(self, entries: Sequence[TapeEntry]) -> None:
        self.entries = tuple(entries)
        self.names = tuple(entry.name for entry in entries)
        self._segments = tuple(
            _bound(self.entries[start:stop]) for start, stop in segments(self.entries)
        )

    def run(self) -> None:
        """Run every entry once; raises InternalError naming the step whose call failed."""
        for segment in self._segments:
            segment()

    def run_watched(self, after: Callable[[int], None]) -> None:
        """Run the entries one by one; `after` receives the number of each."""
        for index, entry in enumerate(self.entries):
            if isinstance(entry.call, PythonCall):
                entry.call.function()
            else:
                NativeSegment([entry])()
            after(index)


def segments(entries: Sequence[TapeEntry]) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of each segment: a run of native calls, or a single Python call."""
    start = 0
    while start < len(entries):
        stop = start + 1
        if isinstance(entries[start].call, NativeCall):
            while stop < len(entries) and isinstance(entries[stop].call, NativeCall):
                stop += 1
        yield start, stop
        start = stop


def _bound(entries: Sequence[TapeEntry]) -> Callable[[], None]:
    call = entries[0].call
    return call.function if isinstance(call, PythonCall) else NativeSegment(entries)


class Entries(Arguments):
    """Arguments of `run_entries`.

    entries: `count` packed rows. result [1]: 1 + the index of the first entry that fails, else 0.
    """

    entries: Int64s
    count: Integer
    result: Int64s


@inlined
def make_calls(call: Entries) -> None:
    """Call the entries in order, up to the first that fails.

    An entry fails if its result is a status other than zero.
    """
    call.result[0] = 0
    for i in range(call.count):
        if made_call(call.entries, i) != 0:
            call.result[0] = i + 1
            break


@native
def run_entries(call: Entries) -> None:
    """Call the entries."""
    make_calls(call)


class NativeSegment:
    """Consecutive native calls, run without the interpreter lock.

    loop: native function that makes the calls. arguments: makes its arguments from those of
    `run_entries`. unlocked: run them without the lock, as all but the shortest should.
    """

    def __init__(
        self,
        entries: Sequence[TapeEntry],
        loop: NativeFunction = run_entries,
        arguments: Callable[..., Entries] = Entries,
        unlocked: bool = True,
    ) -> None:
        self._names = [entry.name for entry in entries]
        # The calls hold references to everything that their arguments point to.
        self._calls = [entry.call for entry in entries if isinstance(entry.call, NativeCall)]
        self._failed: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self._failed_inside = [
            (entry.name, word)
            for entry, call in zip(entries, self._calls, strict=True)
            for word in call.failed
        ]
        given = arguments(entries=pack(self._calls), count=len(entries), result=self._failed)
        self._loop = HostLoop(loop, given, unlocked)

    @property
    def call(self) -> Callable[[], None]:
        """The fastest way to call this object, which must outlive it."""
        can_fail = any(call.checked or call.failed for call in self._calls)
        return self if can_fail else self._loop.call

    def __call__(self) -> None:
        """Run the calls; raises InternalError naming the step whose call failed."""
        self._loop()
        if self._failed[0] or self._failed_inside:
            self._raise_failure()

    def _raise_failure(self) -> None:
        inside = [name for name, word in self._failed_inside if word[0]]
        for _, word in self._failed_inside:
            word[0] = 0
        if inside:
            raise InternalError(f"a native call in the loop of {inside[0]} failed")
        if self._failed[0]:
            failed = self._names[self._failed[0] - 1]
            raise InternalError(f"the native call of {failed} failed")
