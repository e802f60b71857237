"""Prefetching iterator: an engine makes batches while the compute team works on earlier ones.

Decoding and transforms run in Pillow and NumPy, which release the interpreter lock for most of the
time.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.codegen.host_loop import HostLoops, loop_on_one_thread
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.files import with_prefix
from mxrun.io.images.decode import decoded
from mxrun.io.loading.array_iterator import ArrayIterator
from mxrun.io.loading.batch import SAMPLE_WEIGHT, Batch
from mxrun.io.loading.iterator import (
    DataIterator,
    OnWait,
    OrderedIterator,
    RecordError,
    Slots,
    batched,
    check_slots,
    provided,
)
from mxrun.io.loading.order import BatchOrder, LastBatch
from mxrun.io.transforms.base import Record
from mxrun.io.transforms.pipeline import Draws, values
from mxrun.runtime.engine.default import new_engine
from mxrun.runtime.engine.failure import JobError
from mxrun.runtime.engine.interface import Engine, Pool, RunContext
from mxrun.runtime.engine.threaded import ThreadedEngine
from mxrun.runtime.engine.wait import wait_for
from mxrun.runtime.profiler import Event

# Seconds that closing waits for loader threads; a thread reading a record may never return.
_EXIT_S = 1.0


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
    engine: str = ThreadedEngine.kind,
) -> DataIterator:
    """Return the iterator for an opened data set: directly from memory, or with loader threads.

    `loops`, such as a device's, gather rows from memory. `workers` (loader threads), `staging`
    (memory of the prefetched batches) and `engine` (the kind: `naive` reads records on the thread
    that awaits them) are used only if records are read lazily or transformed.
    `parts`: number of equal parts in which each batch is delivered, staged batches too. Raises
    UserError if `last_batch` leaves no batch of the data set.
    """
    if dataset.lazy or dataset.pipeline:
        order = BatchOrder(len(dataset), batch_size, shuffle, seed, last_batch, parts)
        memory = staging or Staging()
        return PrefetchIterator(dataset, order, workers=workers, staging=memory, engine=engine)
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
        self,
        dataset: Dataset,
        order: BatchOrder,
        *,
        workers: int,
        staging: Staging,
        engine: str = ThreadedEngine.kind,
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
        self._indices = np.empty(0, np.int64)
        self._position, self._count = 0, 0
        self._loader = _Loader(_RowMaker(dataset, order), staging, workers, engine)
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
        valid = self._batches.valid(self._position)

        def copy(staged: Slots) -> None:
            for name, slot in slots.items():
                if name == SAMPLE_WEIGHT:
                    slot.fill(1.0)
                    slot[valid:] = 0.0
                else:
                    np.copyto(slot, staged[name])

        self._loader.copy(self._position, copy)
        first = self._position * self.batch_size
        self._position += 1
        return Batch(valid, self._indices[first : first + self.batch_size])

    def watch_waits(self, on_wait: OnWait) -> None:
        """Register `on_wait` to be called while waiting for a batch or for threads to stop."""
        self._loader.on_wait = on_wait

    def record(self, sink: Callable[[Event], None] | None) -> None:
        """Pass the time spans of the functions that make records to `sink`."""
        self._loader.engine.record(sink)

    def close(self) -> None:
        """Stop the threads and wait for `_EXIT_S` at most: reading a record may never return."""
        self._finish.detach()
        self._loader.stop(_EXIT_S)

    def _wait(self) -> None:
        is_ready, started = self._loader.is_ready(self._position), time.perf_counter()
        self._loader.wait(self._position)
        if not is_ready:
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
        found = (column.source(record) for column in self._dataset.lazy.values())
        files = (source.file for source in found if source is not None)
        return next(files, f"record {record} of data set {self._dataset.name!r}")

    def _row(self, name: str, record: int, draws: Draws, shape: tuple[int, ...]) -> Record:
        column = self._dataset.lazy.get(name) or self._dataset.fields[name]
        if isinstance(column, Field):
            raw = column.records[record]
        else:
            raw = decoded(column.record(record), column.shape)
        row = self._dataset.pipeline.apply(name, raw, column.scale, draws)
        if row.shape != shape:
            problem = "the record does not fit the network's input"
            hint = "resize, center_crop, ... in `transforms` bring records to one size"
            expected, got = str(list(shape)), str(list(row.shape))
            raise UserError(Diagnostic(problem, None, expected, got, hint))
        return row if column.scale is None else values(row, column.scale)


class _Loader:
    """Functions on an engine of its own that fill staged batches, some ahead.

    Each batch is cut into parts of several rows, one function each, that run side by side. A part
    of the staging memory is a variable: the function of a part writes it, and copying the batch out
    reads it, before the function of the next batch there is pushed. A function may never return,
    such as one that reads from a disk that hangs; so nothing else runs on this `engine`.
    """

    def __init__(self, maker: _RowMaker, staging: Staging, workers: int, engine: str) -> None:
        self._maker, self._memory, self._staging = maker, staging, staging.batches
        self._size = len(next(iter(self._staging[0].values())))
        self._rows = -(-self._size // workers)
        parts = range(-(-self._size // self._rows))
        self.engine = _engine(engine, workers)
        # By place in the staging memory: the variables of its parts, the operators that fill them,
        # and the batch that these make.
        self._variables = [
            [self.engine.new_variable(f"part {part} of staged batch {place}") for part in parts]
            for place in range(len(self._staging))
        ]
        self._fills = [
            [
                self.engine.new_operator(
                    partial(self._fill, place, part),
                    writes=[variable],
                    name="make records",
                    pool=Pool.IO,
                )
                for part, variable in enumerate(variables)
            ]
            for place, variables in enumerate(self._variables)
        ]
        self._batches = [-1] * len(self._staging)
        self._copied = self.engine.new_variable("the batch that was copied last")
        self._cancelled = True
        self._epoch, self._end = 0, 0
        self._indices: NDArray[np.int64] = np.empty(0, np.int64)
        # For each part in progress, the row of the epoch that is being made.
        self._current_rows: dict[tuple[int, int], int] = {}
        self.on_wait: OnWait = lambda seconds, record: None

    def begin(self, epoch: int, indices: NDArray[np.int64], batch: int, batches: int) -> None:
        """Drop the batches in progress and make the batches `batch` .. `batches` - 1 of `epoch`."""
        self._memory.take(self)
        self.cancel()
        self._cancelled = False
        self._epoch, self._indices, self._end = epoch, indices, batches
        for ahead in range(len(self._staging)):
            self._make(batch + ahead)

    def _make(self, batch: int) -> None:
        """Push the functions of a batch, unless it is after the last."""
        if batch < self._end:
            place = batch % len(self._staging)
            self._batches[place] = batch
            for fill in self._fills[place]:
                self.engine.push(fill)

    def cancel(self) -> None:
        """Stop making batches and wait until no function writes into the memory."""
        self._cancelled = True
        on_wait = self._on_wait()
        for variable in chain.from_iterable(self._variables):
            # Batches with errors are no longer due.
            with suppress(JobError):
                self.engine.wait_for_variable(variable, on_wait=on_wait)

    def is_ready(self, batch: int) -> bool:
        """Return whether nothing of `batch` is left to make."""
        place = batch % len(self._staging)
        idle = map(self.engine.is_idle, self._variables[place])
        return self._batches[place] == batch and all(idle)

    def wait(self, batch: int) -> None:
        """Wait until `batch` is complete; raises what making it or `on_wait` raised."""
        if self._cancelled:
            raise InternalError(
                "no batches are made: the iterator is closed, or must be reset to claim its memory"
            )
        on_wait = self._on_wait()
        # In the order of rows, so that the error of the first one is raised.
        for variable in self._variables[batch % len(self._staging)]:
            wait_for(self.engine, variable, on_wait)

    def _on_wait(self) -> Callable[[], None]:
        """Return a function to call during a wait: it calls `on_wait` with the current record."""
        since, first = time.monotonic(), -1

        def tell() -> None:
            nonlocal since, first
            row = min(self._current_rows.values(), default=-1)
            if row != first:
                since, first = time.monotonic(), row
            record = "a batch" if row < 0 else self._maker.source(int(self._indices[row]))
            self.on_wait(time.monotonic() - since, record)

        return tell

    def copy(self, batch: int, copy: Callable[[Slots], None]) -> None:
        """Call `copy` with a complete staged batch, then make another in its memory."""
        place = batch % len(self._staging)
        operator = self.engine.new_operator(
            lambda run: copy(self._staging[place]),
            reads=self._variables[place],
            writes=[self._copied],
            name="copy batch",
            pool=Pool.COPY,
        )
        self.engine.run_or_push(operator)
        wait_for(self.engine, self._copied)
        self._make(batch + len(self._staging))

    def stop(self, timeout: float) -> None:
        """Stop the threads, each after its current record, and wait up to `timeout` seconds."""
        self._cancelled = True
        self.engine.close(timeout)

    def _fill(self, place: int, part: int, run: RunContext) -> None:
        """Make the rows of a part; raises the exception of the first row that fails."""
        del run
        slots, first = self._staging[place], part * self._rows
        start = self._batches[place] * self._size
        try:
            for row in range(first, min(first + self._rows, self._size)):
                if self._cancelled:
                    break
                at = self._current_rows[place, part] = start + row
                self._maker.make(slots, row, self._epoch, at, int(self._indices[at]))
        finally:
            self._current_rows.pop((place, part), None)


def _engine(kind: str, workers: int) -> Engine:
    """Return an engine of a kind with a number of threads that make records."""
    if kind == ThreadedEngine.kind:
        return ThreadedEngine({Pool.IO: workers}, name="loader")
    return new_engine(kind)
