"""Timing training steps inside a helper process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def busy_thread(wanted: bool) -> Iterator[None]:
    """Where wanted, a thread of pure Python runs meanwhile, competing for the interpreter lock."""
    if not wanted:
        yield
        return
    running = True

    def spin() -> None:
        count = 0
        while running:
            count += 1

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    try:
        yield
    finally:
        running = False
        thread.join()


def milliseconds_per_step(step: Callable[[], None], steps: int) -> list[float]:
    """Wall-clock milliseconds of each of `steps` calls."""
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    return times
