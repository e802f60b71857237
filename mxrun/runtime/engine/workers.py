"""Workers of the threaded engine: the threads of one pool of one context."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from mxrun.base.context import Context
from mxrun.runtime.engine.interface import Pool
from mxrun.runtime.engine.queues import QueuedPush

# One function at a time computes, with a pool of threads; copies and communication are
# bound by memory and network; records are decoded side by side.
DEFAULT_WORKERS: Mapping[Pool, int] = {
    Pool.COMPUTE: 1,
    Pool.COPY: 1,
    Pool.IO: 4,
    Pool.COMMUNICATION: 1,
}


class Workers:
    """Threads of one pool of one context, started when they are first needed.

    ready: heap of (-priority, sequence, push). asleep: for each worker that sleeps, the lock whose
    release wakes it; the last one has slept for the shortest time.
    """

    def __init__(self, name: str, context: Context, pool: Pool, size: int) -> None:
        self.name = f"{name} {context} {pool.value}".lstrip()
        self.context, self.pool, self.size = context, pool, size
        self.ready: list[tuple[int, int, QueuedPush]] = []
        self.asleep: list[threading.Lock] = []
        self.threads: list[threading.Thread] = []
