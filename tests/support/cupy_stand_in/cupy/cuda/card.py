"""The card that is stood in for: its memory, its streams' work, its captures and its faults."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mxrun.device.host_memory import Arena, protect

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, TOO_OLD, NO_DEVICE = 0, 1, 2, 35, 100
INVALID_CONFIGURATION, ILLEGAL_ADDRESS = 9, 700
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, CAPTURE_IMPLICIT = 900, 901, 906
_NAMES = {
    INVALID_VALUE: "cudaErrorInvalidValue: invalid argument",
    OUT_OF_MEMORY: "cudaErrorMemoryAllocation: out of memory",
    INVALID_CONFIGURATION: "cudaErrorInvalidConfiguration: invalid configuration argument",
    TOO_OLD: (
        "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
    ),
    NO_DEVICE: "cudaErrorNoDevice: no CUDA-capable device is detected",
    ILLEGAL_ADDRESS: "cudaErrorIllegalAddress: an illegal memory access was encountered",
    CAPTURE_UNSUPPORTED: (
        "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"
    ),
    CAPTURE_INVALIDATED: (
        "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during capture"
    ),
    CAPTURE_IMPLICIT: (
        "cudaErrorStreamCaptureImplicit: operation would make the legacy stream depend on a "
        "capturing blocking stream"
    ),
}
# CUDA aligns what it allocates.
ALIGNMENT = 256
_NO_RIGHTS, _ALL_RIGHTS = 0, mmap.PROT_READ | mmap.PROT_WRITE
Work = Callable[[], None]


class CUDARuntimeError(RuntimeError):
    """Error of CUDA's runtime."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(_NAMES[status])


@dataclass(frozen=True)
class Settings:
    """What CUPY_STAND_IN sets.

    cards: their number. status: what counting them fails with. driver, runtime: CUDA versions.
    properties: those of the card that differ. memory: its bytes. context: those of them that CUDA
    takes for the process. fails: names of native functions
    that read an illegal address, or `cudnn`, after so many launches of them as `healthy` says.
    uncapturable: those that end a capture. Both may name calls of cuDNN that return an error; of
    `cudnnCreate` it is the second one, whose handle is for captures.
    """

    cards: int = 1
    status: int = SUCCESS
    driver: int = 13000
    runtime: int = 13000
    properties: dict[str, Any] = field(default_factory=dict)
    memory: int = 4 << 30
    context: int = 0
    fails: tuple[str, ...] = ()
    healthy: int = 0
    uncapturable: tuple[str, ...] = ()


class Card:
    """State of the process's card."""

    def __init__(self) -> None:
        self.settings = Settings(**json.loads(os.environ.get("CUPY_STAND_IN", "{}")))
        self.lock = threading.RLock()
        # By address: the card's own blocks, and pinned ones of the host.
        self.blocks: dict[int, Arena] = {}
        self.pinned: dict[int, int] = {}
        # Freed blocks, by size.
        self.pool: dict[int, list[Any]] = {}
        self.streams: list[Any] = []
        # By the thread that began it.
        self.captures: dict[int, Capture] = {}
        # Set by the first illegal address: nothing works any more.
        self.broken = SUCCESS
        self.used = threading.local()
        self.counts: dict[str, int] = {}

    def count(self, name: str, number: int = 1) -> None:
        """Count an event, or `number` bytes, which tests read."""
        self.counts[name] = self.counts.get(name, 0) + number

    def require(self) -> None:
        """Raise CUDARuntimeError if the card cannot work."""
        if self.settings.status:
            raise CUDARuntimeError(self.settings.status)
        if self.broken:
            raise CUDARuntimeError(self.broken)

    def forbid_in_capture(self) -> None:
        """Raise CUDARuntimeError, and end the capture, if this thread captures."""
        if (capture := self.captures.get(threading.get_ident())) is not None:
            capture.is_valid = False
            raise CUDARuntimeError(CAPTURE_UNSUPPORTED)

    def require_current(self) -> None:
        """Raise AssertionError unless this thread has chosen a card: CUDA takes the first one."""
        assert getattr(self.used, "index", None) is not None, "no card was chosen on this thread"

    def allocate(self, nbytes: int) -> int:
        """Return the address of a block without rights, filled with a byte that is no number."""
        self.require()
        self.require_current()
        self.forbid_in_capture()
        if nbytes > self.free():
            raise CUDARuntimeError(OUT_OF_MEMORY)
        padded = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        arena = Arena(padded)
        ctypes.memset(arena.address, 0xA5, padded)
        protect(arena.mapping_address, arena.mapping_bytes, _NO_RIGHTS)
        self.blocks[arena.address] = arena
        return arena.address

    def free(self) -> int:
        """Return the bytes that are not allocated."""
        taken = self.settings.context + sum(arena.nbytes for arena in self.blocks.values())
        return self.settings.memory - taken

    def release(self, address: int) -> None:
        """Free a block, once all work is done."""
        if (capture := self.captures.get(threading.get_ident())) is not None:
            capture.is_valid = False
        for stream in self.streams:
            stream.drain()
        del self.blocks[address]

    def has(self, address: int, nbytes: int = 1) -> bool:
        """Return whether bytes are in a block of the card."""
        return any(
            begin <= address and address + nbytes <= begin + arena.nbytes
            for begin, arena in self.blocks.items()
        )

    def is_pinned(self, address: int, nbytes: int) -> bool:
        """Return whether bytes are in a pinned block of the host."""
        return any(
            begin <= address and address + nbytes <= begin + size
            for begin, size in self.pinned.items()
        )

    def is_over(self) -> bool:
        """Count a launch of a function that fails, and return whether it does so now."""
        self.count("failing")
        return self.counts["failing"] > self.settings.healthy

    def fail(self, status: int) -> None:
        """Make every later call fail."""
        self.broken = status

    @contextmanager
    def working(self) -> Iterator[None]:
        """Context manager that gives rights to the card's memory."""
        arenas = [*self.blocks.values()]
        for arena in arenas:
            protect(arena.mapping_address, arena.mapping_bytes, _ALL_RIGHTS)
        try:
            yield
        finally:
            for arena in arenas:
                protect(arena.mapping_address, arena.mapping_bytes, _NO_RIGHTS)


@dataclass
class Capture:
    """Work that is captured instead of started."""

    work: list[Work] = field(default_factory=list)
    is_valid: bool = True


class WorkQueue:
    """Delayed work of a stream, in order."""

    def __init__(self) -> None:
        self._work: deque[Work] = deque()

    def add(self, work: Work) -> None:
        """Delay work."""
        self._work.append(work)

    def drain(self, last: Work | None = None) -> None:
        """Do the work up to `last`, or all of it."""
        with CARD.lock:
            while self._work and not CARD.broken:
                work = self._work.popleft()
                work()
                if work is last:
                    return


CARD = Card()
