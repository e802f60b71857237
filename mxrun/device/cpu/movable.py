"""Movable programs of the CPU: prepared once, run on tensors at other places each time.

The steps are bound to stand-ins for the tensors' memory, and every 64-bit word that holds an
address within one, in argument blocks or packed calls, is noted with its distance from the tensor.
Before its calls each native segment sets its words, a nanosecond each, so a run neither packs
arguments nor prepares kernels anew. Python bodies are prepared when their places have changed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from mxrun.base.device import DeviceDescription
from mxrun.base.errors import InternalError
from mxrun.codegen.arguments import Int64s, Integer, Table
from mxrun.codegen.intrinsics import int64s
from mxrun.codegen.jit import native
from mxrun.device.cpu.binding import PythonCall, prepared_body
from mxrun.device.cpu.call import MovingWord, NativeCall, words_of
from mxrun.device.cpu.tape import (
    Entries,
    NativeSegment,
    TapeEntry,
    entries_of,
    make_calls,
    segments,
)
from mxrun.device.host_memory import HostMemory, MovableMemory
from mxrun.device.interface import MakeSteps, MovableProgram, other_number
from mxrun.operator.launch import Handle, PythonLaunch, TensorPlace

Addresses = npt.NDArray[np.int64]


class MovedEntries(Entries):
    """Arguments of `run_moved_entries`.

    addresses: those of the program's tensors. words: the addresses of `word_count` words. tensors,
    distances [word_count]: number of the tensor that each word moves with, and the word's distance
    from its address in bytes.
    """

    addresses: Int64s
    words: Table
    word_count: Integer
    tensors: Int64s
    distances: Int64s


@native
def run_moved_entries(call: MovedEntries) -> None:
    """Set all words, then call the entries like `run_entries`."""
    for word in range(call.word_count):
        address = call.addresses[call.tensors[word]] + call.distances[word]
        int64s(call.words, word)[0] = address
    make_calls(call)


class CpuMovableProgram(MovableProgram):
    """Segments like those of a tape, which take the addresses of the tensors from one array.

    description: of the device that runs it. short: hold the interpreter lock in native calls.
    """

    def __init__(
        self, make: MakeSteps, count: int, description: DeviceDescription, short: bool
    ) -> None:
        self._memories = tuple(map(MovableMemory, range(count)))
        self._addresses: Addresses = np.array([each.address for each in self._memories], np.int64)
        # A memoryview is written twice as fast as an array.
        self._written = self._addresses.data
        self._has_bodies = False
        self._short = short
        self._steps = tuple(make([Handle(memory, 0) for memory in self._memories]))
        entries = entries_of(
            self._steps, description.threads, description.index, prepare=self._body
        )
        self._segments = tuple(
            self._segment(entries[start:stop]) for start, stop in segments(entries)
        )
        self._calls = tuple(
            segment.call if isinstance(segment, NativeSegment) else segment
            for segment in self._segments
        )

    def run(self, places: Sequence[TensorPlace]) -> None:
        """Run every call once on tensors at `places`; raises InternalError as a tape does."""
        written = self._written
        number = 0
        try:
            for place in places:
                written[number] = place.memory.address + place.offset  # type: ignore[attr-defined]
                number += 1
        except (AttributeError, IndexError) as error:
            _require_host_memory(places)
            raise other_number(len(written), places) from error
        if number != len(written):
            raise other_number(len(written), places)
        if self._has_bodies:
            for memory, address in zip(self._memories, written, strict=True):
                memory.address = address
        for call in self._calls:
            call()

    def _body(self, launch: PythonLaunch, iterations: tuple[int, ...]) -> Callable[[], None]:
        """Return the run of a Python body, prepared whenever the tensors' addresses change."""
        self._has_bodies = True
        addresses, last, function = self._addresses, b"", None

        def run() -> None:
            nonlocal last, function
            present = addresses.tobytes()
            if function is None or present != last:
                function, last = prepared_body(launch, iterations), present
            function()

        return run

    def _segment(self, entries: Sequence[TapeEntry]) -> NativeSegment | Callable[[], None]:
        call = entries[0].call
        if isinstance(call, PythonCall):
            return call.function
        calls = [entry.call for entry in entries if isinstance(entry.call, NativeCall)]
        arguments = partial(self._arguments, calls)
        return NativeSegment(entries, run_moved_entries, arguments, not self._short)

    def _arguments(
        self, calls: Sequence[NativeCall], entries: Addresses, count: int, result: Addresses
    ) -> MovedEntries:
        words = [word for word in words_of(calls, entries) if word.movable is not None]
        return MovedEntries(
            entries=entries,
            count=count,
            result=result,
            addresses=self._addresses,
            words=tuple(word.word for word in words),
            word_count=len(words),
            tensors=np.array([word.movable for word in words], np.int64),
            distances=np.array([self._distance(word) for word in words], np.int64),
        )

    def _distance(self, word: MovingWord) -> int:
        assert word.movable is not None
        held = ctypes.c_int64.from_address(word.word).value
        return held - self._memories[word.movable].address


def _require_host_memory(places: Sequence[TensorPlace]) -> None:
    for place in places:
        if not isinstance(place.memory, HostMemory):
            raise InternalError(f"the host cannot access {type(place.memory).__name__}")
