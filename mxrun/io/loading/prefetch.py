"""Prefetching iterator: an engine makes batches while earlier ones are computed."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

import numpy as np

from mxrun.base.errors import InternalError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.loading.bad_records import BadRecords, bad_record
from mxrun.io.loading.batch import SAMPLE_WEIGHT, Batch
from mxrun.io.loading.iterator import OnWait, OrderedIterator, Slots, check_slots, provided
from mxrun.io.loading.loader import Epoch, FinishedBatch, Loader
from mxrun.io.loading.order import BatchOrder
from mxrun.io.loading.python_transforms import ThreadTransforms, TransformRunner
from mxrun.io.loading.rows import BatchRows, ReadsInProgress
from mxrun.io.loading.staging import Staging, staging_specs
from mxrun.io.loading.statistics import Work
from mxrun.runtime.engine.threaded import ThreadedEngine
from mxrun.runtime.profiler import Event

# Seconds that closing waits for loader threads; a thread reading a record may never return.
_EXIT_S = 1.0


class PrefetchIterator(OrderedIterator):
    """Iterator over a data set whose rows are made by `workers` threads, some batches ahead.

    `staging` holds the prefetched batches; `next_into` copies the next one. A row is a function of
    seed, epoch and record, independent of the thread that makes it. Threads start with the first
    reset or batch and stop with `close`. `waited_seconds` is the total time that `next_into` has
    waited for batches. `bad_records` counts the records that are left out because of an error; if
    it is None, an error is raised when the record's batch is due. `python` applies the transforms
    that are the user's own, by default on the threads.
    """

    reads_records = True

    def __init__(
        self,
        dataset: Dataset,
        order: BatchOrder,
        *,
        workers: int,
        staging: Staging,
        engine: str = ThreadedEngine.kind,
        bad_records: BadRecords | None = None,
        python: TransformRunner | None = None,
    ) -> None:
        """Raises UserError if `order` leaves no batch of the data set."""
        super().__init__(dataset, order)
        specs = staging_specs(dataset.inputs, order.part_size)
        if workers < 0 or not staging.batches:
            raise InternalError(f"{workers} workers on {len(staging.batches)} staged batches")
        for slots in staging.batches:
            check_slots(slots, specs)
            if set(slots) != set(specs):
                raise InternalError(f"a staged batch holds {sorted(slots)}, not {sorted(specs)}")
        self.provide_data, self.provide_label = provided(dataset.inputs, order.part_size)
        self.waited_seconds = 0.0
        self._dataset, self._bad_records = dataset, bad_records
        self._indices = np.empty(0, np.int64)
        self._position, self._count = 0, 0
        rows = BatchRows(dataset, order.seed, ReadsInProgress(), python or ThreadTransforms())
        self._loader = Loader(rows, staging, workers, engine, bad_records is not None)
        self._finish = weakref.finalize(self, self._loader.stop, _EXIT_S)
        self._started = False

    def reset(self, epoch: int, batch: int = 0) -> None:
        """Go to `batch` of `epoch` and start to make batches from there."""
        if not self._finish.alive:
            raise InternalError("the iterator is closed")
        self._started = True
        self._indices = self._batches.indices(epoch)
        self._indices.setflags(write=False)
        # From here on positions and counts are in parts of batches.
        self._position, self._count = batch * self.parts, self.batches(epoch) * self.parts
        draws = self._batches.draw_epochs(epoch)
        rows = Epoch(epoch, self._indices, draws, self._batches.valid, self._count, self.parts)
        self._loader.begin(rows, self._position)

    def next_into(self, slots: Slots) -> Batch | None:
        """Write the next batch into the given `slots`; return None after the last.

        Raises RecordError for a record that cannot be read when its batch is due, or for too many.
        """
        if slots is not self._checked:
            check_slots(slots, self.specs)
            self._checked = slots
        if not self._started:
            self.reset(0)
        if self._position >= self._count:
            return None
        finished = self._wait()
        if self._bad_records is not None and finished.errors:
            self._bad_records.leave_out(
                bad_record(self._dataset, record, error)
                for record, error in finished.errors.items()
            )

        def copy(staged: Slots) -> None:
            for name, slot in slots.items():
                if name == SAMPLE_WEIGHT:
                    slot.fill(1.0)
                    slot[finished.valid :] = 0.0
                else:
                    np.copyto(slot, staged[name])

        self.waited_seconds += self._loader.copy(self._position, copy)
        self._position += 1
        return Batch(finished.valid, finished.indices)

    def watch_waits(self, on_wait: OnWait) -> None:
        """Register `on_wait` to be called while waiting for a batch or for threads to stop."""
        self._loader.on_wait = on_wait

    def record(self, sink: Callable[[Event], None] | None) -> None:
        """Pass the time spans of the functions that make records to `sink`."""
        self._loader.engine.record(sink)

    def work(self) -> Work:
        """Return the work of each stage of loading so far."""
        return self._loader.statistics.work()

    def close(self) -> None:
        """Stop the threads and wait for `_EXIT_S` at most: reading a record may never return."""
        self._finish.detach()
        self._loader.stop(_EXIT_S)

    def _wait(self) -> FinishedBatch:
        is_ready, started = self._loader.is_ready(self._position), time.perf_counter()
        finished = self._loader.wait(self._position)
        if not is_ready:
            self.waited_seconds += time.perf_counter() - started
        return finished
