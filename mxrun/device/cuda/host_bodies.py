"""Python bodies beside a card: they compute in pinned host memory.

A body sees a mirror of the bytes that it touches. They are copied there before it runs, and those
that it may write are copied back afterwards. Tensors that overlap on the card overlap in the
mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec, align
from mxrun.device.cuda.memory import PinnedMemory, address_of
from mxrun.device.cuda.queue import Queue
from mxrun.device.host_memory import UNBACKED_ADDRESS, array_at
from mxrun.operator.launch import Handle, PythonLaunch

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class MirroredRange:
    """`nbytes` from `address` on, whose copy begins `offset` bytes into the pinned memory."""

    address: int
    nbytes: int
    offset: int


Ranges: TypeAlias = tuple[MirroredRange, ...]


def joined(tensors: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield address and size of the ranges that tensors cover, each given by these as well."""
    last, end = 0, 0
    for begin, nbytes in sorted(each for each in tensors if each[1]):
        if begin >= end:
            if end:
                yield last, end - last
            last = begin
        end = max(end, begin + nbytes)
    if end:
        yield last, end - last


def mirrored(tensors: Sequence[tuple[int, int]]) -> Ranges:
    """Return the ranges that tensors cover, with places in pinned memory."""
    ranges, offset = [], 0
    for begin, nbytes in joined(tensors):
        ranges.append(MirroredRange(begin, nbytes, offset))
        offset += align(nbytes)
    return tuple(ranges)


def offset_of(address: int, ranges: Ranges) -> int:
    """Return the place in pinned memory of an address within one of the ranges."""
    (found,) = (each for each in ranges if 0 <= address - each.address < each.nbytes)
    return found.offset + address - found.address


class HostBodies:
    """Bodies of one program, which run one after the other in the same pinned memory."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._bodies: list[HostCall] = []

    def add(self, launch: PythonLaunch, iterations: tuple[int, ...]) -> HostCall:
        """Return the call of a body in the given iterations of the enclosing loops."""
        tensors: list[tuple[int, int]] = []
        written: list[tuple[int, int]] = []

        def look(handle: Handle, spec: TensorSpec) -> Array:
            tensors.append((address_of(handle, iterations), spec.nbytes))
            if not any(handle is each for each in launch.only_read):
                written.append(tensors[-1])
            return array_at(UNBACKED_ADDRESS, spec.shape, spec.dtype)

        launch.prepare(look)
        read = mirrored(tensors)
        back = tuple(MirroredRange(*each, offset_of(each[0], read)) for each in joined(written))
        self._bodies.append(HostCall(launch, iterations, read, back))
        return self._bodies[-1]

    def place(self) -> None:
        """Allocate the pinned memory, and prepare each body on it."""
        if self._bodies:
            pinned = PinnedMemory(self._queue, max(body.pinned_bytes for body in self._bodies))
            for body in self._bodies:
                body.place(pinned)


class HostCall:
    """Run of a Python body between copies from and to the card.

    read: ranges that it touches. written: those of them that it may write.
    """

    _body: Callable[[], None]
    _pinned: PinnedMemory

    def __init__(
        self,
        launch: PythonLaunch,
        iterations: tuple[int, ...],
        read: Ranges,
        written: Ranges,
    ) -> None:
        self._launch, self._iterations = launch, iterations
        self._read, self._written = read, written

    @property
    def pinned_bytes(self) -> int:
        """Bytes of pinned memory that the call needs."""
        return max((each.offset + each.nbytes for each in self._read), default=0)

    def place(self, pinned: PinnedMemory) -> None:
        """Prepare the body on pinned memory."""

        def view(handle: Handle, spec: TensorSpec) -> Array:
            if not spec.nbytes:
                return pinned.array(0, spec)
            return pinned.array(offset_of(address_of(handle, self._iterations), self._read), spec)

        self._pinned = pinned
        self._body = self._launch.prepare(view)

    def start(self, queue: Queue) -> None:
        """Copy, wait, run the body, and start to copy back."""
        place = self._pinned.place
        for each in self._read:
            queue.copy_out(place(each.offset), each.address, each.nbytes)
        queue.wait("a launch before a Python body")
        self._body()
        for each in self._written:
            queue.copy_in(each.address, place(each.offset), each.nbytes)
