"""Report of the blocks of storage that nothing has freed when the process ends."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable

from mxrun.runtime.storage import StoragePool

_STANDARD_ERROR = 2


def leaks(pool: StoragePool) -> str:
    """Return a line that lists the blocks in use; empty if there are none."""
    counts = {capacity: count for capacity, count in pool.blocks_in_use().items() if count}
    if not counts:
        return ""
    blocks, nbytes = sum(counts.values()), sum(size * count for size, count in counts.items())
    sizes = ", ".join(f"{count:,} of {size:,}" for size, count in counts.items())
    return f"mxrun: {pool.context} leaks {blocks:,} blocks, {nbytes:,} bytes: {sizes}"


class _LeakReport:
    """Writes the leaks when it is deleted, unless daemon threads have not ended.

    The interpreter stops such threads wherever they are, and what their functions refer to is never
    deleted: it cannot be told from leaks.

    This uses no module's globals, which may be deleted by then. So it holds the table of threads,
    from which a thread removes itself at its end; `Thread.is_alive` is false for stopped ones too.
    """

    def __init__(self, pools: Iterable[StoragePool]) -> None:
        self._pools, self._line, self._write = pools, leaks, os.write
        self._descriptor = _STANDARD_ERROR
        self._threads = vars(threading)["_active"]

    def __del__(self) -> None:
        if len(self._threads) > 1:
            return
        for pool in self._pools:
            if line := self._line(pool):
                self._write(self._descriptor, f"{line}\n".encode())


def report_leaks_at_exit(pools: Iterable[StoragePool]) -> None:
    """Report blocks on standard error that are in use after the interpreter has deleted everything.

    Nothing is reported if daemon threads have not ended by then.

    Functions registered with `atexit` would run too early, when the globals of all modules still
    exist. The interpreter deletes the attributes of `sys` after all other modules.
    """
    vars(sys)["_mxrun_leak_report"] = _LeakReport(pools)
