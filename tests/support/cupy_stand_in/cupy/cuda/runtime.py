"""cupy.cuda.runtime: functions of CUDA's runtime."""

from __future__ import annotations

import ctypes
from typing import Any

from cupy.cuda.card import CARD, INVALID_VALUE, CUDARuntimeError
from cupy.cuda.stream import BY_POINTER

streamCaptureModeThreadLocal = 1  # noqa: N816 - a name of CUDA
_TO_DEVICE, _TO_HOST = 1, 2
# Those of an H100 that plans depend on, with its published figures.
_PROPERTIES: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 132,
    "maxThreadsPerMultiProcessor": 2048,
}


def getDeviceCount() -> int:
    """Return the number of cards."""
    CARD.require()
    return CARD.settings.cards


def getDeviceProperties(device: int) -> dict[str, Any]:
    """Return a card's properties."""
    CARD.require()
    assert 0 <= device < CARD.settings.cards
    own = {"totalGlobalMem": CARD.settings.memory, **CARD.settings.properties}
    found = {**_PROPERTIES, **own}
    return {**found, "name": found["name"].encode()}


def driverGetVersion() -> int:
    """Return the CUDA version of the driver; 0 without one."""
    return CARD.settings.driver


def runtimeGetVersion() -> int:
    """Return the CUDA version for which CuPy was built."""
    return CARD.settings.runtime


def memGetInfo() -> tuple[int, int]:
    """Return the free bytes of the card, and all of them."""
    CARD.require()
    CARD.require_current()
    CARD.forbid_in_capture()
    return CARD.free(), CARD.settings.memory


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    """Copy later, or at once from and to memory that is not pinned."""
    own, host = (dst, src) if kind == _TO_DEVICE else (src, dst)
    assert kind in (_TO_DEVICE, _TO_HOST)
    if not CARD.has(own, size):
        raise CUDARuntimeError(INVALID_VALUE)
    queue = BY_POINTER[stream]
    CARD.count("to the card" if kind == _TO_DEVICE else "to the host", size)

    def copy() -> None:
        with CARD.working():
            ctypes.memmove(dst, src, size)

    if CARD.is_pinned(host, size):
        queue.submit(copy)
        return
    CARD.forbid_in_capture()
    queue.drain()
    CARD.require()
    copy()


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
    """Set bytes later."""
    if not CARD.has(ptr, size):
        raise CUDARuntimeError(INVALID_VALUE)

    def fill() -> None:
        with CARD.working():
            ctypes.memset(ptr, value, size)

    BY_POINTER[stream].submit(fill)
