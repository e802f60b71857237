"""Stages of loading as operations of an engine: read, make rows, finish the batch, copy it out.

Decoding and transforms release the interpreter lock for most of the time, so that they run beside
each other and beside the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError, UserError
from mxrun.io.loading.bad_records import record_error
from mxrun.io.loading.iterator import OnWait, Slots
from mxrun.io.loading.rows import BatchRows
from mxrun.io.loading.staging import Staging
from mxrun.io.loading.statistics import COPY, MAKE, MIX, READ, StageStatistics
from mxrun.io.loading.turns import Turns
from mxrun.runtime.engine.default import new_engine
from mxrun.runtime.engine.failure import JobError
from mxrun.runtime.engine.interface import Engine, Pool, RunContext, Variable
from mxrun.runtime.engine.naive import NaiveEngine
from mxrun.runtime.engine.threaded import ThreadedEngine
from mxrun.runtime.engine.wait import wait_for

# Rows that are made by one call: enough to share the cost of the call, and few enough that a loader
# with one thread can stop within a batch.
_MAX_ROWS = 64


@dataclass(frozen=True, eq=False)
class Epoch:
    """Rows of an epoch: of each its record, and the number that selects its random draws.

    number: that of the epoch. valid: number of rows of a part of a batch that are records, not
    padding. parts: number of parts of batches, of which each batch has `micro_batches`.
    """

    number: int
    indices: NDArray[np.int64]
    draws: NDArray[np.int64]
    valid: Callable[[int], int]
    parts: int
    micro_batches: int = 1


@dataclass(frozen=True, eq=False)
class FinishedBatch:
    """Contents of a staged batch: the first `valid` rows are the records `indices`.

    errors: of the records that were left out, by record, in the order of rows.
    """

    valid: int
    indices: NDArray[np.int64]
    errors: Mapping[int, UserError] = field(default_factory=dict)


@dataclass(eq=False)
class _StagedBatch:
    """Memory for one staged batch, and the variables of its stages.

    batch: number of the batch that is made there. content: of each part, what was read. errors: of
    each part, those of its rows. finished: the batch, once it is complete.
    """

    slots: Slots
    content_variables: list[Variable]
    row_variables: list[Variable]
    variable: Variable
    content: list[Any]
    errors: list[Mapping[int, UserError]]
    batch: int = -1
    finished: FinishedBatch | None = None


class Loader:
    """Functions on an engine of its own that fill staged batches, some ahead.

    Each batch is cut into parts of several rows. Two functions make a part: one reads the files,
    the other one decodes and transforms; those of different parts run side by side. When all parts
    of a batch are made, a further function finishes it. What each of them writes is a variable, and
    variables alone order them. A function may never return, such as one that reads from a disk that
    hangs; so nothing else runs on this `engine`.

    skips: whether bad records are left out; else the error of the first one is that of its batch.
    """

    def __init__(
        self, rows: BatchRows, staging: Staging, workers: int, engine: str, skips: bool
    ) -> None:
        """`workers`: number of threads that make rows; 0: the thread that awaits them."""
        self._rows, self._memory, self._skips = rows, staging, skips
        self._size = len(next(iter(staging.batches[0].values())))
        self._part_rows = min(_MAX_ROWS, -(-self._size // max(workers, 1)))
        row_bytes = sum(slot.nbytes for slot in staging.batches[0].values()) // self._size
        self._turns = Turns(row_bytes, rows.runs_python)
        self.engine = _engine(engine, workers)
        threads = max(workers, 1) if isinstance(self.engine, ThreadedEngine) else 1
        stages = {READ: threads, MAKE: threads, MIX: 1, COPY: 1}
        self.statistics = StageStatistics(stages)
        self._places = [
            self._new_place(number, slots) for number, slots in enumerate(staging.batches)
        ]
        self._operators = [self._new_operators(place) for place in self._places]
        self._copied = self.engine.new_variable("the batch that was copied last")
        self._cancelled = True
        rows.reading.is_cancelled = lambda: self._cancelled
        self._epoch = Epoch(0, np.empty(0, np.int64), np.empty(0, np.int64), lambda part: 0, 0)
        self.on_wait: OnWait = lambda seconds, record: None

    def _new_place(self, number: int, slots: Slots) -> _StagedBatch:
        parts = range(-(-self._size // self._part_rows))
        new = self.engine.new_variable
        return _StagedBatch(
            slots,
            [new(f"content of part {part} of staged batch {number}") for part in parts],
            [new(f"part {part} of staged batch {number}") for part in parts],
            new(f"staged batch {number}"),
            [None for _ in parts],
            [{} for _ in parts],
        )

    def _new_operators(self, place: _StagedBatch) -> list[Any]:
        """Return the operators that fill a place, in the order in which they are pushed."""
        new, operators = self.engine.new_operator, []
        for part, (content, rows) in enumerate(
            zip(place.content_variables, place.row_variables, strict=True)
        ):
            operators += [
                new(
                    partial(self._read, place, part),
                    writes=[content],
                    name="read records",
                    pool=Pool.IO,
                ),
                new(
                    partial(self._make, place, part),
                    reads=[content],
                    writes=[rows],
                    name="make records",
                    pool=Pool.COMPUTE,
                ),
            ]
        finish = new(
            partial(self._finish, place),
            updates=place.row_variables,
            writes=[place.variable],
            name="finish batch",
            pool=Pool.COMPUTE,
            # A complete batch may be awaited.
            priority=1,
        )
        return [*operators, finish]

    def begin(self, epoch: Epoch, batch: int) -> None:
        """Drop the batches in progress and make the batches of `epoch` from `batch` on."""
        self._memory.take(self)
        self.cancel()
        self._cancelled = False
        self._epoch = epoch
        for ahead in range(len(self._places)):
            self._push(batch + ahead)

    def _push(self, batch: int) -> None:
        """Push the functions of a batch, unless it is after the last."""
        if batch >= self._epoch.parts:
            return
        place = self._places[batch % len(self._places)]
        place.batch, place.finished = batch, None
        for operator in self._operators[batch % len(self._places)]:
            self.engine.push(operator)

    def cancel(self) -> None:
        """Stop making batches and wait until no function writes into the memory."""
        self._cancelled = True
        on_wait = self._on_wait()
        for place in self._places:
            variables = [*place.content_variables, *place.row_variables, place.variable]
            for variable in variables:
                # Batches with errors are no longer due.
                with suppress(JobError):
                    self.engine.wait_for_variable(variable, on_wait=on_wait)

    def is_ready(self, batch: int) -> bool:
        """Return whether nothing of `batch` is left to make."""
        place = self._places[batch % len(self._places)]
        return place.batch == batch and self.engine.is_idle(place.variable)

    def wait(self, batch: int) -> FinishedBatch:
        """Wait until `batch` is complete; raises what making it or `on_wait` raised."""
        if self._cancelled:
            raise InternalError(
                "no batches are made: the iterator is closed, or must be reset to claim its memory"
            )
        place = self._places[batch % len(self._places)]
        wait_for(self.engine, place.variable, self._on_wait())
        assert place.finished is not None
        return place.finished

    def _on_wait(self) -> Callable[[], None]:
        """Return a function to call during a wait: it calls `on_wait` with the current record."""
        started = time.monotonic()

        def tell() -> None:
            seconds, record = self._rows.reading.longest()
            if record:
                self.on_wait(seconds, record)
            else:
                self.on_wait(time.monotonic() - started, "a batch")

        return tell

    def copy(self, batch: int, copy: Callable[[Slots], None]) -> float:
        """Call `copy` with a complete staged batch, then make another in its memory.

        Returns the seconds for which the calling thread made it, 0 if other threads do.
        """
        place = self._places[batch % len(self._places)]

        def run(context: RunContext) -> None:
            del context
            size = sum(slot.nbytes for slot in place.slots.values())
            with self.statistics.busy(COPY, self._size, size):
                copy(place.slots)

        operator = self.engine.new_operator(
            run,
            reads=[place.variable, *place.row_variables],
            writes=[self._copied],
            name="copy batch",
            pool=Pool.COPY,
        )
        self.engine.run_or_push(operator)
        wait_for(self.engine, self._copied)
        started = time.perf_counter()
        self._push(batch + len(self._places))
        is_threaded = isinstance(self.engine, ThreadedEngine)
        return 0.0 if is_threaded else time.perf_counter() - started

    def stop(self, timeout: float) -> None:
        """Stop the threads, each after its current records, and wait up to `timeout` seconds."""
        self._cancelled = True
        self.engine.close(timeout)

    # -- functions of the engine ---------------------------------------------------------------

    def _range(self, place: _StagedBatch, part: int) -> tuple[slice, slice]:
        """Return the rows of a part, in its batch and in the epoch."""
        first = part * self._part_rows
        end = min(first + self._part_rows, self._size)
        start = place.batch * self._size
        return slice(first, end), slice(start + first, start + end)

    def _read(self, place: _StagedBatch, part: int, run: RunContext) -> None:
        """Read the records of a part."""
        del run
        rows, positions = self._range(place, part)
        count = rows.stop - rows.start
        with self._turns.reading():
            started = time.perf_counter()
            place.content[part] = self._rows.read(self._epoch.indices[positions])
            size = self._rows.reading.taken_bytes()
            self.statistics.add(READ, time.perf_counter() - started, count, size)
        self._turns.note(count, size)

    def _make(self, place: _StagedBatch, part: int, run: RunContext) -> None:
        """Make the rows of a part from its records."""
        del run
        content, place.content[part] = place.content[part], None
        if self._cancelled:
            return
        rows, positions = self._range(place, part)
        targets = {name: slot[rows] for name, slot in place.slots.items()}
        size = sum(target.nbytes for target in targets.values())
        with self._turns.making(), self.statistics.busy(MAKE, rows.stop - rows.start, size):
            indices, draws = self._epoch.indices[positions], self._epoch.draws[positions]
            errors = self._rows.write(content, indices, draws, targets)
        place.errors[part] = {rows.start + row: error for row, error in errors.items()}

    def _finish(self, place: _StagedBatch, run: RunContext) -> None:
        """Leave out bad records; raises the error of the first one if none may be left out."""
        del run
        if self._cancelled:
            return
        start, valid = place.batch * self._size, self._epoch.valid(place.batch)
        indices = self._epoch.indices[start : start + self._size]
        errors = {row: error for part in place.errors for row, error in sorted(part.items())}
        if errors and not self._skips:
            row = min(errors)
            raise record_error(self._rows.dataset, int(indices[row]), errors[row])
        with self.statistics.busy(MIX, self._size):
            place.finished = FinishedBatch(valid, indices)
            if errors:
                place.finished = _compacted(place.slots, indices, valid, errors)
            batch = place.batch // self._epoch.micro_batches
            self._rows.mix(place.slots, place.finished.valid, self._epoch.number, batch)


def _compacted(
    slots: Slots, indices: NDArray[np.int64], valid: int, errors: Mapping[int, UserError]
) -> FinishedBatch:
    """Move the good rows of a batch to the front, in their order, and repeat them behind.

    The number of valid rows shrinks by those with errors. Without a good row all rows are zero.
    """
    good = np.array([row for row in range(len(indices)) if row not in errors], np.int64)
    order = np.resize(good, len(indices)) if len(good) else np.arange(len(indices))
    for slot in slots.values():
        if len(good):
            slot[...] = slot[order]
        else:
            slot.fill(0)
    found = {int(indices[row]): errors[row] for row in sorted(errors) if row < valid}
    indices = indices[order]
    indices.setflags(write=False)
    return FinishedBatch(int(np.count_nonzero(good < valid)), indices, found)


def _engine(kind: str, workers: int) -> Engine:
    """Return an engine of a kind with a number of threads that make records."""
    if workers == 0:
        return NaiveEngine()
    if kind == ThreadedEngine.kind:
        return ThreadedEngine({Pool.IO: workers, Pool.COMPUTE: workers, Pool.COPY: 1}, "loader")
    return new_engine(kind)
