"""Iterator over records in memory, which gathers them directly into the plan's memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.codegen.arguments import Arguments, Float32s, Int64s, Integer, Real, Uint8s
from mxrun.codegen.host_loop import HostLoops, loop_on_one_thread
from mxrun.codegen.jit import native
from mxrun.codegen.loops import elements_of_task
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.loading.batch import SAMPLE_WEIGHT, Batch
from mxrun.io.loading.iterator import OnWait, OrderedIterator, Slots, check_slots, provided
from mxrun.io.loading.order import BatchOrder
from mxrun.io.loading.window_gather import WindowGather, writer_of


class ArrayIterator(OrderedIterator):
    """Iterator over a data set in memory; MXNet's NDArrayIter.

    Every epoch yields each record once, except for those that `order` leaves over; padded rows
    have sample weight 0. `next_into` allocates no array: it gathers rows into the slot. Bytes are
    converted and scaled in the same pass by one of `loops`; a device's threads then find their
    shares in their own caches. Shuffling sorts one 64-bit draw per record at `reset`.
    """

    def __init__(
        self,
        dataset: Dataset,
        order: BatchOrder,
        loops: HostLoops = loop_on_one_thread,
    ) -> None:
        """Raises UserError if `order` leaves no batch of the data set."""
        super().__init__(dataset, order)
        self.provide_data, self.provide_label = provided(dataset.specs, self.batch_size)
        self._gathers = {
            name: gather_of(column, self.batch_size, loops)
            for name, column in dataset.fields.items()
        }
        # Rows of one epoch. Only the first `_rows` are valid if epochs differ in length.
        self._order = np.zeros(self._batches.longest, np.int64)
        self._rows = 0
        self._indices = self._order.view()
        self._indices.setflags(write=False)
        self._position = 0
        self._weight: NDArray[Any] | None = None
        self._writers: list[Callable[[int], None]] = []
        self.reset(0)

    def reset(self, epoch: int, batch: int = 0) -> None:
        """Go to `batch` of `epoch`; the order depends only on the seed and `epoch`."""
        order = self._batches.indices(epoch)
        self._rows = len(order)
        self._order[: self._rows] = order
        self._position = batch * self._batches.own_rows

    def next_into(self, slots: Slots) -> Batch | None:
        """Write the next batch into the given `slots`; return None after the last."""
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
        """Do nothing: records in memory are never waited for."""

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def _check(self, slots: Slots) -> None:
        check_slots(slots, self.specs)
        self._checked = slots
        self._weight = slots.get(SAMPLE_WEIGHT)
        self._writers = [
            self._gathers[name].writer(self._order, slot)
            for name, slot in slots.items()
            if name != SAMPLE_WEIGHT
        ]


def gather_of(column: Field, batch_size: int, loops: HostLoops) -> _Gather | WindowGather:
    """Return the gather of a field's records into slots of `batch_size` rows."""
    are_windows = bool(column.dtype) or column.starts is not None
    return (WindowGather if are_windows else _Gather)(column, batch_size, loops)


class RecordGathering(Arguments):
    """Arguments of `gather_bytes_loop`: rows of `elements` elements, the first ones of records.

    stride: elements of a record. first: position in `indices` of the first row's record.
    """

    rows: Integer
    elements: Integer
    stride: Integer
    scale: Real
    records: Uint8s
    target: Float32s
    indices: Int64s
    first: Integer


@native
def gather_bytes_loop(call: RecordGathering) -> None:
    """Compute target[row] = float32(records[indices[first + row]]) * scale for each element."""
    elements = call.elements
    for row in elements_of_task(call.rows):
        start = call.indices[call.first + row] * call.stride
        for i in range(elements):
            call.target[row * elements + i] = np.float32(call.records[start + i]) * call.scale


class _Gather:
    """Gather of selected records of one field into a slot, scaled if the field has a scale."""

    def __init__(self, column: Field, batch_size: int, loops: HostLoops) -> None:
        self._loops = loops
        self._records = np.ascontiguousarray(column.records)
        self._scale = None if column.scale is None else np.float32(column.scale)
        self._batch_size = batch_size

    def writer(self, order: NDArray[np.int64], slot: NDArray[Any]) -> Callable[[int], None]:
        """Return a function of `start` that sets slot[row] = record[order[start + row]], scaled in
        float32; the slot may be shorter than scaled records of rank 1.
        """
        if self._scale is None:
            return partial(self._take, order, slot)
        if self._records.dtype == np.uint8:
            return self._compiled(order, slot, float(self._scale))
        rows = np.empty((self._batch_size, *self._records.shape[1:]), self._records.dtype)
        return partial(self._take_scaled, order, slot, rows)

    def _take(self, order: NDArray[np.int64], slot: NDArray[Any], start: int) -> None:
        # All indices are in range. mode="clip" because `take` buffers its output in the default
        # mode.
        indices = order[start : start + self._batch_size]
        self._records.take(indices, axis=0, out=slot, mode="clip")

    def _take_scaled(
        self, order: NDArray[np.int64], slot: NDArray[Any], rows: NDArray[Any], start: int
    ) -> None:
        self._take(order, rows, start)
        # Two steps, as NumPy multiplies mixed dtypes through buffers.
        np.copyto(slot, rows[..., : slot.shape[-1]] if slot.ndim > 1 else rows)
        slot *= self._scale

    def _compiled(
        self, order: NDArray[np.int64], slot: NDArray[Any], scale: float
    ) -> Callable[[int], None]:
        """Return a writer that gathers, converts and scales bytes in one pass, in a fifth of the
        time.
        """
        elements = slot[0].size
        gathering = RecordGathering(
            rows=self._batch_size,
            elements=elements,
            stride=self._records[0].size,
            scale=scale,
            records=self._records,
            target=slot,
            indices=order,
            first=0,
        )
        return writer_of(self._loops(gather_bytes_loop, gathering, self._batch_size * elements))
