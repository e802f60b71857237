"""Work on every record of a data set, on several threads, with results in the order of records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Advance = Callable[[int], None]
# Ranges that each thread has ahead.
_AHEAD = 2


def scan(
    count: int,
    work: Callable[[range], T],
    workers: int,
    advance: Advance,
    done: int = 0,
    chunk: int = 32,
) -> Generator[T, None, None]:
    """Yield the results of `work` for consecutive ranges of `count` records, in their order.

    workers: number of threads. advance: receives the number of records that are done; `done` are
    those of earlier data sets. chunk: records of a range. The ranges do not depend on the number of
    threads.
    """
    waiting: deque[tuple[range, Future[T]]] = deque()
    pool = ThreadPoolExecutor(workers, "scan")
    try:
        starts = iter(range(0, count, chunk))
        while True:
            while len(waiting) < workers * _AHEAD:
                start = next(starts, None)
                if start is None:
                    break
                records = range(start, min(start + chunk, count))
                waiting.append((records, pool.submit(work, records)))
            if not waiting:
                return
            records, future = waiting.popleft()
            result = future.result()
            advance(done + records.stop)
            yield result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
