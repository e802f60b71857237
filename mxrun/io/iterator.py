"""Batches in order or shuffled, written straight into the memory that the plan gave them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.backend.jit import (
    Block,
    HostLoop,
    float32s,
    int64s,
    integer,
    native,
    real,
    share,
    uint8s,
)
from mxrun.backend.team import team_for_elements
from mxrun.base.errors import InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.batch import SAMPLE_WEIGHT, Batch, is_label
from mxrun.io.dataset import Dataset, Field
from mxrun.io.order import BatchOrder, LastBatch

# The io slots of a plan by input name: C-contiguous views into the arena.
Slots = Mapping[str, NDArray[Any]]
# Hears, several times a second while a batch is awaited, for how many seconds the same record has
# been read and which that is; what it raises ends the wait.
OnWait = Callable[[float, str], None]


class RecordError(UserError):
    """A record of a data set cannot be read or transformed."""


class DataIterator(ABC):
    """A source of batches of one fixed size; MXNet's DataIter, writing where it is told.

    Each batch comes in `parts` equal parts, which is one where batches are not cut; `batch_size`,
    the rows written at a time, are those of a part.
    `provide_data` and `provide_label` name what a batch holds, with the batch axis in front; a
    batch also holds `sample_weight` float32 [batch size]. `waited_seconds` is the time that
    `next_into` has spent waiting for records not yet there, since the iterator was made.
    `reads_records`: whether it can wait for records, and fail with RecordError.
    """

    waited_seconds: float = 0.0
    reads_records: bool = False
    parts: int = 1
    batch_size: int
    provide_data: dict[str, TensorSpec]
    provide_label: dict[str, TensorSpec]

    @abstractmethod
    def batches(self, epoch: int) -> int:
        """Number of batches of `epoch`."""

    @property
    @abstractmethod
    def period(self) -> int:
        """After how many epochs their numbers of batches repeat."""

    @abstractmethod
    def reset(self, epoch: int, batch: int = 0) -> None:
        """Go to `batch` of `epoch`, counted from 0; a new iterator stands at batch 0 of epoch 0.

        What a batch holds is a function of seed, epoch and batch, whatever was read before.
        """

    @abstractmethod
    def next_into(self, slots: Slots) -> Batch | None:
        """Write the next batch, or part of one, into `slots` (those given, no others); None after
        the last.

        Raises RecordError for a record that cannot be read, naming it, and what `watch_waits` was
        given raises.
        """

    @abstractmethod
    def watch_waits(self, on_wait: OnWait) -> None:
        """Have `on_wait` called while the caller's thread waits for records."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the iterator holds; it cannot be used afterwards. Twice is once."""

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Everything a batch holds: data, labels and sample weights."""
        weight = TensorSpec((self.batch_size,))
        return {**self.provide_data, **self.provide_label, SAMPLE_WEIGHT: weight}


def provided(
    records: Mapping[str, TensorSpec], batch_size: int
) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
    """The specs of a batch of `records`: of its data and of its labels."""
    specs = batched(records, batch_size)
    data = {name: spec for name, spec in specs.items() if not is_label(name)}
    return data, {name: spec for name, spec in specs.items() if is_label(name)}


def batched(records: Mapping[str, TensorSpec], batch_size: int) -> dict[str, TensorSpec]:
    """The specs of `batch_size` records, stacked."""
    return {
        name: TensorSpec((batch_size, *spec.shape), spec.dtype) for name, spec in records.items()
    }


def check_slots(slots: Slots, specs: Mapping[str, TensorSpec]) -> None:
    """A slot of another shape, type or stride would make NumPy copy or refuse: say which."""
    for name, slot in slots.items():
        if name not in specs:
            raise InternalError(f"the iterator has nothing for slot {name!r}")
        held = TensorSpec(slot.shape, slot.dtype.name)
        if held != specs[name] or not slot.flags.c_contiguous:
            raise InternalError(f"slot {name!r} is {held}, the batch {specs[name]} in C order")


class ArrayIterator(DataIterator):
    """Iterates over a data set in memory; MXNet's NDArrayIter.

    Every epoch gives each record once, but for what `last_batch` leaves over; padding has sample
    weight 0. `next_into` allocates no array: rows are gathered into the slot, and bytes
    are converted and scaled on the way by the compute team's `threads`, so that each thread finds
    its share in its own cache.
    Shuffling sorts one 64-bit draw per record at `reset`.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        last_batch: LastBatch = "pad",
        threads: int = 1,
        parts: int = 1,
    ) -> None:
        """Raises UserError where `last_batch` leaves nothing of the data set."""
        self._batches = BatchOrder(len(dataset), batch_size, shuffle, seed, last_batch, parts)
        self._batches.check(dataset.name, dataset.place)
        self.parts, self.batch_size = parts, self._batches.part_size
        self.provide_data, self.provide_label = provided(dataset.specs, self.batch_size)
        self._gathers = {
            name: _Gather(column, self.batch_size, threads)
            for name, column in dataset.fields.items()
        }
        # The rows of one epoch; of those only the first `_rows` where epochs differ in length.
        self._order = np.zeros(self._batches.longest, np.int64)
        self._rows = 0
        self._indices = self._order.view()
        self._indices.setflags(write=False)
        self._position = 0
        self._checked: Slots | None = None
        self._weight: NDArray[Any] | None = None
        self._writers: list[Callable[[int], None]] = []
        self.reset(0)

    def batches(self, epoch: int) -> int:
        """Number of batches of `epoch`."""
        return self._batches.batches(epoch)

    @property
    def period(self) -> int:
        """After how many epochs their numbers of batches repeat."""
        return self._batches.period

    def reset(self, epoch: int, batch: int = 0) -> None:
        """Go to `batch` of `epoch`; the order depends on the seed and `epoch` alone."""
        order = self._batches.indices(epoch)
        self._rows = len(order)
        self._order[: self._rows] = order
        self._position = batch * self._batches.batch_size

    def next_into(self, slots: Slots) -> Batch | None:
        """Write the next batch into `slots` (those given, no others); None after the last."""
        if slots is not self._checked:
            self._check(slots)
        start = self._position
        if start >= self._rows:
            return None
        self._position = start + self.batch_size
        indices = self._indices[start : self._position]
        valid = self._batches.valid(start // self.batch_size)
        for write in self._writers:
            write(start)
        if self._weight is not None:
            self._weight.fill(1.0)
            if valid < self.batch_size:
                self._weight[valid:] = 0.0
        return Batch(valid, indices)

    def watch_waits(self, on_wait: OnWait) -> None:
        """Nothing: records in memory are not waited for."""

    def close(self) -> None:
        """Nothing is held that needs giving back."""

    def _check(self, slots: Slots) -> None:
        check_slots(slots, self.specs)
        self._checked = slots
        self._weight = slots.get(SAMPLE_WEIGHT)
        self._writers = [
            self._gathers[name].writer(self._order, slot)
            for name, slot in slots.items()
            if name != SAMPLE_WEIGHT
        ]


@native
def gather_bytes_loop(block: Block) -> None:
    """target[row] = float32(records[indices[row]]) * scale, element by element."""
    rows, elements = integer(block, 0), integer(block, 1)
    scale = real(block, 2)
    records, target = uint8s(block, 3), float32s(block, 4)
    indices = int64s(block, 5)
    begin, end = share(block, rows)
    for row in range(begin, end):
        start = indices[row] * elements
        for i in range(elements):
            target[row * elements + i] = np.float32(records[start + i]) * scale


class _Gather:
    """Copies chosen records of one field into a slot, converting where the field has a scale."""

    def __init__(self, column: Field, batch_size: int, threads: int) -> None:
        self._threads = threads
        self._records = np.ascontiguousarray(column.records)
        self._scale = None if column.scale is None else np.float32(column.scale)
        self._batch_size = batch_size

    def writer(self, order: NDArray[np.int64], slot: NDArray[Any]) -> Callable[[int], None]:
        """A function of `start`: slot[row] = record[order[start + row]], scaled in float32."""
        if self._scale is None:
            return partial(self._take, order, slot)
        if self._records.dtype == np.uint8:
            return self._compiled(order, slot, float(self._scale))
        rows = np.empty((self._batch_size, *self._records.shape[1:]), self._records.dtype)
        return partial(self._take_scaled, order, slot, rows)

    def _take(self, order: NDArray[np.int64], slot: NDArray[Any], start: int) -> None:
        # `clip` never clips here: the other mode of `take` gathers into a hidden buffer first.
        indices = order[start : start + self._batch_size]
        self._records.take(indices, axis=0, out=slot, mode="clip")

    def _take_scaled(
        self, order: NDArray[np.int64], slot: NDArray[Any], rows: NDArray[Any], start: int
    ) -> None:
        self._take(order, rows, start)
        # Apart, as NumPy runs a product of mixed types through buffers.
        np.copyto(slot, rows)
        slot *= self._scale

    def _compiled(
        self, order: NDArray[np.int64], slot: NDArray[Any], scale: float
    ) -> Callable[[int], None]:
        """Bytes are gathered, converted and scaled in one pass, in a fifth of the time."""
        elements = self._records[0].size
        addresses = (self._records.ctypes.data, slot.ctypes.data)
        arguments = (self._batch_size, elements, scale, *addresses, 0)
        threads = team_for_elements(self._batch_size * elements, self._threads)
        loop = HostLoop(gather_bytes_loop, arguments, threads)
        first = order.ctypes.data

        def write(start: int) -> None:
            loop.set(5, first + start * order.itemsize)
            loop()

        return write
