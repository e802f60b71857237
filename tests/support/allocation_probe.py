"""Train a config and report the allocations of its training steps, as JSON on standard output.

Run with the allocation counter preloaded: `allocation_probe.py native|python CONFIG KEY=VALUE...`.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

from training import prepare

from mxrun.config.bundled import find_config
from mxrun.io.loading.batch import Batch
from mxrun.io.loading.iterator import DataIterator, OnWait, Slots
from mxrun.preparation.planning import load
from mxrun.train.replay import NullCheckpointing, NullObserver

KEPT = 64


class Watched(DataIterator):
    """The run's own iterator; counts from the first batch of the third step to the last batch.

    The loop requests a batch, runs it and computes metrics, so everything between two requests
    belongs to steps. A step takes `together` batches.
    """

    def __init__(
        self,
        iterator: DataIterator,
        together: int,
        start: Callable[[], None],
        stop: Callable[[], None],
    ) -> None:
        self._iterator = iterator
        self._first = 2 * together + 1
        self._start, self._stop = start, stop
        self.batch_size = iterator.batch_size
        self.provide_data = iterator.provide_data
        self.provide_label = iterator.provide_label
        self.requests = 0

    def batches(self, epoch: int) -> int:
        return self._iterator.batches(epoch)

    @property
    def period(self) -> int:
        return self._iterator.period

    def reset(self, epoch: int, batch: int = 0) -> None:
        self._iterator.reset(epoch, batch)

    def watch_waits(self, on_wait: OnWait) -> None:
        self._iterator.watch_waits(on_wait)

    def close(self) -> None:
        self._iterator.close()

    def next_into(self, slots: Slots) -> Batch | None:
        self.requests += 1
        if self.requests == self._first:
            self._start()
        if self.requests == self.batches(1):
            self._stop()
        return self._iterator.next_into(slots)


def native() -> tuple[Callable[[], None], Callable[[], None], dict[str, Any]]:
    """Counts native allocations of 4 KiB or more."""
    counter = ctypes.CDLL(None)
    counter.allocation_counter_stop.restype = ctypes.c_long
    sizes = (ctypes.c_size_t * KEPT)()
    found: dict[str, Any] = {}

    def stop() -> None:
        count = counter.allocation_counter_stop(sizes)
        found.update(count=count, sizes=list(sizes[: min(count, KEPT)]))

    # An allocation of this script proves that the counter works.
    counter.allocation_counter_start()
    ctypes.create_string_buffer(1 << 16)
    stop()
    found["own"] = found.pop("count")
    return counter.allocation_counter_start, stop, found


def python() -> tuple[Callable[[], None], Callable[[], None], dict[str, Any]]:
    """Measure the bytes of Python objects that the steps leave, and their peak."""
    found: dict[str, Any] = {}

    def start() -> None:
        tracemalloc.start()
        tracemalloc.reset_peak()
        found["before"] = tracemalloc.get_traced_memory()[0]

    def stop() -> None:
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        found.update(growth=after - found["before"], peak=peak - found["before"])

    return start, stop, found


KINDS: Mapping[str, Callable[[], tuple[Callable[[], None], Callable[[], None], dict[str, Any]]]] = {
    "native": native,
    "python": python,
}

if __name__ == "__main__":
    kind, config, *overrides = sys.argv[1:]
    begin, end, report = KINDS[kind]()
    built = load(find_config(config), overrides)
    run = prepare(built)
    together = built.training.accumulate
    run.iterators["train"] = Watched(run.iterators["train"], together, begin, end)
    result = run.loop(NullObserver()).run(NullCheckpointing(), lambda: False)
    json.dump({**report, "steps": result.progress.step}, sys.stdout)
