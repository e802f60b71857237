"""The tape: a bound step as a frozen list of calls, run by one native loop.

Consecutive native calls form one segment, which the loop runs without the interpreter's lock:
0.5 us a call and no other Python thread in between, where a ctypes call would give the lock away
each time. Python-bodied operators stand between the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.backend.call import NativeCall
from mxrun.base.errors import InternalError
from mxrun.operator.kernel import Call, PythonCall

_ARGUMENTS = 6
# Columns of an entry: function address, whether its result is a status, six arguments.
_COLUMNS = 2 + _ARGUMENTS


@dataclass(frozen=True)
class TapeEntry:
    """One call with the name of the step it belongs to."""

    name: str
    call: Call


class Tape:
    """Runs the entries in order; nothing is allocated or decided while it runs."""

    def __init__(self, entries: Sequence[TapeEntry]) -> None:
        self.entries = tuple(entries)
        self._segments = tuple(_segments(self.entries))

    def run(self) -> None:
        """Run every entry once; raises InternalError naming the step whose call failed."""
        for segment in self._segments:
            segment()

    def run_in_python(self, after_entry: Callable[[int, TapeEntry], None]) -> None:
        """The debug mode: the same entries one by one, with a look at each after it ran."""
        for index, entry in enumerate(self.entries):
            if isinstance(entry.call, PythonCall):
                entry.call.function()
            else:
                _run_native(_packed([entry.call]), (entry,))
            after_entry(index, entry)


def _segments(entries: tuple[TapeEntry, ...]) -> list[Callable[[], None]]:
    segments: list[Callable[[], None]] = []
    start = 0
    while start < len(entries):
        call = entries[start].call
        if isinstance(call, PythonCall):
            segments.append(call.function)
            start += 1
            continue
        stop = start
        while stop < len(entries) and isinstance(entries[stop].call, NativeCall):
            stop += 1
        segments.append(_native_segment(entries[start:stop]))
        start = stop
    return segments


def _native_segment(entries: tuple[TapeEntry, ...]) -> Callable[[], None]:
    packed = _packed([entry.call for entry in entries if isinstance(entry.call, NativeCall)])
    loop = native_loop()

    def run() -> None:
        failed = loop(packed)
        if failed:
            raise InternalError(f"the native call of {entries[failed - 1].name} failed")

    return run


def _run_native(packed: npt.NDArray[np.int64], entries: tuple[TapeEntry, ...]) -> None:
    failed = native_loop()(packed)
    if failed:
        raise InternalError(f"the native call of {entries[failed - 1].name} failed")


def _packed(calls: Sequence[NativeCall]) -> npt.NDArray[np.int64]:
    packed: npt.NDArray[np.int64] = np.zeros((len(calls), _COLUMNS), np.int64)
    for row, call in zip(packed, calls, strict=True):
        if len(call.arguments) > _ARGUMENTS:
            raise InternalError(f"a native call takes at most {_ARGUMENTS} arguments")
        row[0], row[1] = call.function, call.checked
        row[2 : 2 + len(call.arguments)] = call.arguments
    return packed


@cache
def native_loop() -> Any:
    """The compiled loop: packed entries -> 0, or 1 + the index of the entry that failed.

    Every function is called with six integer arguments; in the C calling conventions of x86-64
    and AArch64 those beyond what a function takes stay unread in registers.
    """
    from llvmlite import ir
    from numba import njit, types
    from numba.extending import intrinsic

    @intrinsic
    def call_address(
        context: Any, function: Any, a0: Any, a1: Any, a2: Any, a3: Any, a4: Any, a5: Any
    ) -> Any:
        word = ir.IntType(64)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(word, [word] * _ARGUMENTS)
            pointer = builder.inttoptr(arguments[0], kind.as_pointer())
            return builder.call(pointer, arguments[1:])

        return types.int64(*[types.int64] * (1 + _ARGUMENTS)), generate

    @njit(types.int64(types.int64[:, ::1]), nogil=True, cache=True)
    def run_entries(entries: Any) -> int:
        for i in range(entries.shape[0]):
            status = call_address(
                entries[i, 0],
                entries[i, 2],
                entries[i, 3],
                entries[i, 4],
                entries[i, 5],
                entries[i, 6],
                entries[i, 7],
            )
            # A C int fills the lower half of the register only.
            if entries[i, 1] != 0 and status & 0xFFFFFFFF != 0:
                return i + 1
        return 0

    return run_entries
