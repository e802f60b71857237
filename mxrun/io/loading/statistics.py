"""Work of each stage of loading, from which follows the one that limits the others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

from mxrun.base.dataclass import dataclass
from mxrun.base.locks import new_lock

# Stages in the order in which a batch passes them.
READ, MAKE, MIX, COPY = "read", "make", "mix", "copy"


@dataclass(frozen=True)
class StageWork:
    """Work of a stage so far.

    seconds: sum of the times that its `threads` were busy. bytes: read from files, or written.
    """

    seconds: float = 0.0
    records: int = 0
    bytes: int = 0
    threads: int = 1

    @property
    def seconds_per_thread(self) -> float:
        """Least time that the work takes if all threads share it equally."""
        return self.seconds / self.threads

    def since(self, before: StageWork) -> StageWork:
        """Return the work that was done after `before`."""
        return StageWork(
            self.seconds - before.seconds,
            self.records - before.records,
            self.bytes - before.bytes,
            self.threads,
        )

    def to_json(self) -> dict[str, float | int]:
        """Return the work as plain JSON."""
        return asdict(self)


Work = Mapping[str, StageWork]


class StageStatistics:
    """Sums of the work of every stage; threads may add to them at any time."""

    def __init__(self, threads: Mapping[str, int]) -> None:
        """`threads`: the number of threads of each stage."""
        self._lock = new_lock()
        self._work = {stage: StageWork(threads=count) for stage, count in threads.items()}

    @contextmanager
    def busy(self, stage: str, records: int, size: int = 0) -> Iterator[None]:
        """Context manager whose duration, `records` and `size` bytes are added to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - started, records, size)

    def add(self, stage: str, seconds: float, records: int, size: int) -> None:
        """Add to the work of a stage."""
        with self._lock:
            before = self._work[stage]
            self._work[stage] = StageWork(
                before.seconds + seconds,
                before.records + records,
                before.bytes + size,
                before.threads,
            )

    def work(self) -> Work:
        """Return the work of each stage so far."""
        with self._lock:
            return dict(self._work)


def limiting_stage(work: Work) -> str:
    """Return the stage that takes longest for the same records; empty if there was no work."""
    busy = {stage: done.seconds_per_thread for stage, done in work.items() if done.records}
    return max(busy, key=lambda stage: busy[stage], default="")
