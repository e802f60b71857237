"""Prefetching iterator: loader threads make batches while the compute team works on earlier ones.

Decoding and transforms run in Pillow and NumPy, which release the interpreter lock for most of the
time.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.codegen.host_loop import HostLoops, loop_on_one_thread
from mxrun.io.batch import SAMPLE_WEIGHT, Batch
from mxrun.io.dataset import Dataset, Field, Inputs
from mxrun.io.files import with_prefix
from mxrun.io.iterator import (
    ArrayIterator,
    DataIterator,
    OnWait,
    OrderedIterator,
    RecordError,
    Slots,
    batched,
    check_slots,
    provided,
)
from mxrun.io.order import BatchOrder, LastBatch
from mxrun.io.record import Record
from mxrun.io.transform import Draws, values

# Seconds that closing waits for loader threads; a thread reading a record may never return.
_EXIT_S = 1.0
# Seconds between calls of `on_wait` while a batch is awaited.
_POLL_S = 0.1


def staging_specs(inputs: Inputs, batch_size: int) -> dict[str, TensorSpec]:
    """Return the specs of the arrays of one staged batch for a network that reads `inputs`."""
    return batched(inputs, batch_size)


class Staging:
    """Memory for prefetched batches: the arrays of `staging_specs` for each batch.

    Several iterators may share it, as training and evaluation do. A reset claims the memory; the
    iterator that used it before must be reset before it can continue.
    """

    def __init__(self, batches: Sequence[Slots] = ()) -> None:
        self.batches = batches
        self._user: _Loader | None = None

    def take(self, user: _Loader) -> None:
        """Make `user` the only loader that writes into the memory."""
        if self._user is not None and self._user is not user:
            self._user.cancel()
        self._user = user


def open_iterator(
    dataset: Dataset,
    batch_size: int,
    *,
    shuffle: bool = False,
    seed: int = 0,
    last_batch: LastBatch = "pad",
    loops: HostLoops = loop_on_one_thread,
    workers: int = 1,
    staging: Staging | None = None,
    parts: int = 1,
) -> DataIterator:
    """Return the iterator for an opened data set: directly from memory, or with loader threads.

    `loops`, such as a device's, gather rows from memory. `workers` (loader threads) and `staging`
    (memory of the prefetched batches) are used only if records are read lazily or transformed.
    `parts`: number of equal parts in which each batch is delivered, staged batches too. Raises
    UserError if `last_batch` leaves no batch of the data set.
    """
    if dataset.lazy or dataset.pipeline:
        order = BatchOrder(len(dataset), batch_size, shuffle, seed, last_batch, parts)
        return PrefetchIterator(dataset, order, workers=workers, staging=staging or Staging())
    return ArrayIterator(
        dataset,
        batch_size,
        shuffle=shuffle,
        seed=seed,
        last_batch=last_batch,
        loops=loops,
        parts=parts,
    )


class PrefetchIterator(OrderedIterator):
    """Iterator over a data set whose rows are made by `workers` threads, some batches ahead.

    `staging` holds the prefetched batches; `next_into` copies the next one. A row is a function of
    seed, epoch and record, independent of the thread that makes it. Threads start with the first
    reset or batch and stop with `close`. `waited_seconds` is the total time that `next_into` has
    waited for batches.
    """

    reads_records = True

    def __init__(
        self, dataset: Dataset, order: BatchOrder, *, workers: int, staging: Staging
    ) -> None:
        """Raises UserError if `order` leaves no batch of the data set."""
        super().__init__(dataset, order)
        specs = staging_specs(dataset.inputs, order.part_size)
        if workers < 1 or not staging.batches:
            raise InternalError(f"{workers} workers on {len(staging.batches)} staged batches")
        for slots in staging.batches:
            check_slots(slots, specs)
            if set(slots) != set(specs):
                raise InternalError(f"a staged batch holds {sorted(slots)}, not {sorted(specs)}")
        self.provide_data, self.provide_label = provided(dataset.inputs, order.part_size)
        self.waited_seconds = 0.0
        self._staging = staging.batches
        self._indices = np.empty(0, np.int64)
        self._position, self._count = 0, 0
        self._loader = _Loader(_RowMaker(dataset, order), staging, workers)
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
        self._loader.begin(epoch, self._indices, self._position, self._count)

    def next_into(self, slots: Slots) -> Batch | None:
        """Write the next batch into the given `slots`; return None after the last.

        Raises RecordError for a record that cannot be read when its batch is due.
        """
        if slots is not self._checked:
            check_slots(slots, self.specs)
            self._checked = slots
        if not self._started:
            self.reset(0)
        if self._position >= self._count:
            return None
        self._wait()
        staged = self._staging[self._position % len(self._staging)]
        valid = self._batches.valid(self._position)
        for name, slot in slots.items():
            if name == SAMPLE_WEIGHT:
                slot.fill(1.0)
                slot[valid:] = 0.0
            else:
                np.copyto(slot, staged[name])
        first = self._position * self.batch_size
        self._position += 1
        self._loader.release()
        return Batch(valid, self._indices[first : first + self.batch_size])

    def watch_waits(self, on_wait: OnWait) -> None:
        """Register `on_wait` to be called while waiting for a batch or for threads to stop."""
        self._loader.on_wait = on_wait

    def close(self) -> None:
        """Stop the threads and wait for `_EXIT_S` at most: reading a record may never return."""
        self._finish.detach()
        self._loader.stop(_EXIT_S)

    def _wait(self) -> None:
        if self._loader.is_ready(self._position):
            return
        started = time.perf_counter()
        self._loader.wait(self._position)
        self.waited_seconds += time.perf_counter() - started


class _RowMaker:
    """Makes single rows of batches; stateless and therefore thread-safe."""

    def __init__(self, dataset: Dataset, order: BatchOrder) -> None:
        self._dataset = dataset
        self._order = order

    def make(self, slots: Slots, row: int, epoch: int, at: int, record: int) -> None:
        """Write record `record` into row `row` of a batch; `at` is the row's position in its epoch.

        Raises RecordError naming the record if it cannot be read or transformed.
        """
        draws = Draws(self._order.seed, self._order.order_epoch(epoch, at), record)
        try:
            for name, slot in slots.items():
                slot[row] = self._row(name, record, draws, slot.shape[1:])
        except UserError as error:
            where = f"record {record} of data set {self._dataset.name!r}"
            raise RecordError(with_prefix(error, where, self._dataset.place).diagnostics) from error

    def source(self, record: int) -> str:
        """Return the file of a record, or a description of the record if it has no file."""
        files = (column.source(record) for column in self._dataset.lazy.values())
        return next(filter(None, files), f"record {record} of data set {self._dataset.name!r}")

    def _row(self, name: str, record: int, draws: Draws, shape: tuple[int, ...]) -> Record:
        column = self._dataset.lazy.get(name) or self._dataset.fields[name]
        raw = column.records[record] if isinstance(column, Field) else column.record(record)
        row = self._dataset.pipeline.apply(name, raw, column.scale, draws)
        if row.shape != shape:
            problem = "the record does not fit the network's input"
            hint = "resize, center_crop, ... in `transforms` bring records to one size"
            expected, got = str(list(shape)), str(list(row.shape))
            raise UserError(Diagnostic(problem, None, expected, got, hint))
        return row if column.scale is None else values(row, column.scale)


class _Loader:
    """Threads that fill staged batches in order; each batch is cut into parts of several rows.

    A batch may be made once the previous batch in the same memory has been released. One lock
    guards all state; a thread holds it only to take a part and to report it as done.
    """

    def __init__(self, maker: _RowMaker, staging: Staging, workers: int) -> None:
        self._maker = maker
        self._memory = staging
        self._staging = staging.batches
        self._workers = workers
        self._size = len(next(iter(self._staging[0].values())))
        self._rows = -(-self._size // workers)
        self._parts = -(-self._size // self._rows)
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._stopping, self._cancelled = False, False
        self._busy = 0
        self._epoch = 0
        self._indices: NDArray[np.int64] = np.empty(0, np.int64)
        self._released, self._next_part, self._end = 0, 0, 0
        self._left: dict[int, int] = {}
        self._failed: dict[int, Exception] = {}
        # For each part in progress, the row of the epoch that is being made.
        self._current_rows: dict[int, int] = {}
        self.on_wait: OnWait = lambda seconds, record: None

    def begin(self, epoch: int, indices: NDArray[np.int64], batch: int, batches: int) -> None:
        """Drop the batches in progress and make the batches `batch` .. `batches` - 1 of `epoch`."""
        self._memory.take(self)
        self.cancel()
        with self._changed:
            self._cancelled = False
            self._epoch, self._indices = epoch, indices
            self._released, self._next_part = batch, batch * self._parts
            self._end = batches * self._parts
            self._left.clear()
            self._failed.clear()
            self._changed.notify_all()
        while len(self._threads) < self._workers:
            thread = threading.Thread(target=self._work, name="mxrun-loader", daemon=True)
            self._threads.append(thread)
            thread.start()

    def cancel(self) -> None:
        """Stop making batches and wait until no thread writes into the memory."""
        with self._changed:
            self._cancelled = True
            self._wait_for(lambda: self._busy == 0)

    def is_ready(self, batch: int) -> bool:
        """Return whether `batch` is complete; raises the exception that making it raised."""
        with self._changed:
            return self._ready(batch)

    def wait(self, batch: int) -> None:
        """Wait until `batch` is complete; raises what making it or `on_wait` raised."""
        with self._changed:
            self._wait_for(lambda: self._ready(batch))

    def _wait_for(self, done: Callable[[], bool]) -> None:
        """Wait for `done` with the lock held, calling `on_wait` periodically."""
        since, first = time.monotonic(), -1
        while not self._changed.wait_for(done, _POLL_S):
            row = min(self._current_rows.values(), default=-1)
            if row != first:
                since, first = time.monotonic(), row
            record = "a batch" if row < 0 else self._maker.source(int(self._indices[row]))
            self.on_wait(time.monotonic() - since, record)

    def release(self) -> None:
        """Release the memory of the oldest staged batch, which has been copied."""
        with self._changed:
            del self._left[self._released]
            self._released += 1
            self._changed.notify_all()

    def stop(self, timeout: float) -> None:
        """Stop the threads, each after its current record, and wait up to `timeout` seconds."""
        with self._changed:
            self._stopping = self._cancelled = True
            self._changed.notify_all()
        end = time.monotonic() + timeout
        for thread in self._threads:
            # The garbage collector may run in a loader thread and finalise the iterator there.
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _ready(self, batch: int) -> bool:
        if self._cancelled:
            raise InternalError(
                "no batches are made: the iterator is closed, or must be reset to claim its memory"
            )
        if self._left.get(batch) != 0:
            return False
        first = batch * self._size
        failed = [row for row in self._failed if first <= row < first + self._size]
        if failed:
            raise self._failed[min(failed)]
        return True

    def _work(self) -> None:
        while (part := self._take()) is not None:
            failure = self._fill(part)
            with self._changed:
                self._busy -= 1
                self._current_rows.pop(part, None)
                self._left[part // self._parts] -= 1
                if failure is not None:
                    self._failed[failure[0]] = failure[1]
                self._changed.notify_all()

    def _take(self) -> int | None:
        """Return the next part to make, after waiting for one; None if the thread must end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._may_take())
            if self._stopping:
                return None
            part = self._next_part
            self._next_part += 1
            self._busy += 1
            self._left.setdefault(part // self._parts, self._parts)
            return part

    def _may_take(self) -> bool:
        limit = (self._released + len(self._staging)) * self._parts
        return not self._cancelled and self._next_part < min(self._end, limit)

    def _fill(self, part: int) -> tuple[int, Exception] | None:
        """Make the rows of a part; returns the first that fails, with its exception."""
        batch, number = divmod(part, self._parts)
        slots = self._staging[batch % len(self._staging)]
        first = number * self._rows
        for row in range(first, min(first + self._rows, self._size)):
            if self._cancelled:
                break
            at = batch * self._size + row
            self._current_rows[part] = at
            try:
                self._maker.make(slots, row, self._epoch, at, int(self._indices[at]))
            except Exception as error:  # noqa: BLE001 - raised in the waiting thread
                return at, error
        return None
