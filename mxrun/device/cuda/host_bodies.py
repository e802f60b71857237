"""Python bodies beside a card: they compute in pinned host memory.

A body sees a mirror of the bytes that it touches. They are copied there before it runs and back
afterwards, because nothing says which of its tensors it writes. Tensors that overlap on the card
overlap in the mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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


def mirrored(tensors: Sequence[tuple[int, int]]) -> tuple[MirroredRange, ...]:
    """Return the ranges that tensors cover, each given by address and size in bytes."""
    joined: list[tuple[int, int]] = []
    for begin, nbytes in sorted(tensors):
        last = joined[-1] if joined else (0, 0)
        if joined and begin < last[1]:
            joined[-1] = last[0], max(last[1], begin + nbytes)
        elif nbytes:
            joined.append((begin, begin + nbytes))
    ranges, offset = [], 0
    for begin, end in joined:
        ranges.append(MirroredRange(begin, end - begin, offset))
        offset += align(end - begin)
    return tuple(ranges)


class HostBodies:
    """Bodies of one program, which run one after the other in the same pinned memory."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._bodies: list[HostCall] = []

    def add(self, launch: PythonLaunch, iterations: tuple[int, ...]) -> HostCall:
        """Return the call of a body in the given iterations of the enclosing loops."""
        tensors: list[tuple[int, int]] = []

        def look(handle: Handle, spec: TensorSpec) -> Array:
            tensors.append((address_of(handle, iterations), spec.nbytes))
            return array_at(UNBACKED_ADDRESS, spec.shape, spec.dtype)

        launch.prepare(look)
        self._bodies.append(HostCall(self._queue, launch, iterations, mirrored(tensors)))
        return self._bodies[-1]

    def place(self) -> None:
        """Allocate the pinned memory, and prepare each body on it."""
        if self._bodies:
            pinned = PinnedMemory(self._queue, max(body.pinned_bytes for body in self._bodies))
            for body in self._bodies:
                body.place(pinned)


class HostCall:
    """Run of a Python body between copies from and to the card."""

    _body: Callable[[], None]
    _pinned: PinnedMemory

    def __init__(
        self,
        queue: Queue,
        launch: PythonLaunch,
        iterations: tuple[int, ...],
        ranges: tuple[MirroredRange, ...],
    ) -> None:
        self._queue, self._launch, self._iterations = queue, launch, iterations
        self._ranges = ranges

    @property
    def pinned_bytes(self) -> int:
        """Bytes of pinned memory that the call needs."""
        return max((each.offset + each.nbytes for each in self._ranges), default=0)

    def place(self, pinned: PinnedMemory) -> None:
        """Prepare the body on pinned memory."""

        def view(handle: Handle, spec: TensorSpec) -> Array:
            begin = address_of(handle, self._iterations)
            if not spec.nbytes:
                return pinned.array(0, spec)
            (found,) = (
                each for each in self._ranges if each.address <= begin < each.address + each.nbytes
            )
            return pinned.array(found.offset + begin - found.address, spec)

        self._pinned = pinned
        self._body = self._launch.prepare(view)

    def start(self, queue: Queue) -> None:
        """Copy, wait, run the body, and start to copy back."""
        base = self._pinned.address
        for each in self._ranges:
            queue.copy_out(base + each.offset, each.address, each.nbytes)
        queue.wait("a launch before a Python body")
        self._body()
        for each in self._ranges:
            queue.copy_in(each.address, base + each.offset, each.nbytes)
