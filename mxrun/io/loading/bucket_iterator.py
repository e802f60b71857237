"""Iterator over records in memory whose batches have the lengths of their buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec
from mxrun.codegen.host_loop import HostLoops, loop_on_one_thread
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.loading.array_iterator import gather_of
from mxrun.io.loading.batch import SAMPLE_WEIGHT, Batch
from mxrun.io.loading.bucket_order import BucketedEpoch, BucketOrder
from mxrun.io.loading.iterator import DataIterator, OnWait, Slots, batched, check_slots, provided


@dataclass(frozen=True, eq=False)
class _Target:
    """Slots of one length, and the functions that fill them from a position in the order."""

    slots: Slots
    writers: list[Callable[[int], None]]
    weight: NDArray[Any] | None


class BucketIterator(DataIterator):
    """Iterator whose batches have records of one bucket each.

    `bucket` is that of the next batch. Its slots have the bucket's length, or the length of the
    longest, as `specs` say: records are then padded to that.
    """

    def __init__(
        self,
        dataset: Dataset,
        order: BucketOrder,
        parts: int = 1,
        loops: HostLoops = loop_on_one_thread,
    ) -> None:
        """Raises UserError if `order` has no batch."""
        order.check(dataset.name, dataset.place)
        self._dataset, self._bucket_order = dataset, order
        self.parts, self.batch_size = parts, order.batch_size // parts
        self.bucket_lengths = order.buckets.lengths
        self.provide_data, self.provide_label = provided(dataset.specs, self.batch_size)
        self._gathers = {
            name: gather_of(column, self.batch_size, loops)
            for name, column in dataset.fields.items()
        }
        # Record of each row of the epoch, part after part.
        self._order = np.zeros(order.batches * order.batch_size, np.int64)
        self._indices = self._order.view()
        self._indices.setflags(write=False)
        self._epoch = BucketedEpoch(*(np.zeros(0, np.int64) for _ in range(3)))
        self._part = 0
        # By the bucket whose length the slots have.
        self._targets: dict[int, _Target] = {}
        self.reset(0)

    @property
    def bucket(self) -> int:
        """Number of the bucket of the next batch; of the last one after that."""
        batch = min(self._part // self.parts, len(self._epoch.buckets) - 1)
        return int(self._epoch.buckets[batch])

    def bucket_specs(self, bucket: int) -> dict[str, TensorSpec]:
        """Return the specs of all arrays of a batch of a bucket."""
        fields, length = self._bucket_order.buckets.fields, self.bucket_lengths[bucket]
        records = {
            name: TensorSpec((length,), spec.dtype) if name in fields else spec
            for name, spec in self._dataset.specs.items()
        }
        weight = TensorSpec((self.batch_size,))
        return {**batched(records, self.batch_size), SAMPLE_WEIGHT: weight}

    def batches(self, epoch: int) -> int:
        """Return the number of batches of `epoch`."""
        return self._bucket_order.batches

    @property
    def period(self) -> int:
        """Number of epochs after which the sequence of numbers of batches repeats."""
        return 1

    def reset(self, epoch: int, batch: int = 0) -> None:
        """Go to `batch` of `epoch`."""
        self._epoch = self._bucket_order.epoch(epoch)
        self._order[...] = self._epoch.records.reshape(-1)
        self._part = batch * self.parts

    def next_into(self, slots: Slots) -> Batch | None:
        """Write the next batch into slots of its bucket's length, or of the longest one's."""
        batch, part = divmod(self._part, self.parts)
        if batch >= len(self._epoch.buckets):
            return None
        target = self._target(slots, self.bucket)
        start = self._part * self.batch_size
        self._part += 1
        for write in target.writers:
            write(start)
        rows = int(self._epoch.valid[batch]) - part * self.batch_size
        valid = max(0, min(rows, self.batch_size))
        if target.weight is not None:
            target.weight[:valid], target.weight[valid:] = 1.0, 0.0
        return Batch(valid, self._indices[start : start + self.batch_size])

    def _target(self, slots: Slots, bucket: int) -> _Target:
        """Return the functions that fill these slots with a batch of a bucket.

        Raises InternalError for slots that have neither its length nor that of the longest.
        """
        fields, longest = self._bucket_order.buckets.fields, self.bucket_lengths[-1]
        if any(slot.shape[-1] == longest for name, slot in slots.items() if name in fields):
            bucket = len(self.bucket_lengths) - 1
        known = self._targets.get(bucket)
        if known is None or known.slots is not slots:
            check_slots(slots, self.bucket_specs(bucket))
            writers = [
                self._gathers[name].writer(self._order, slot)
                for name, slot in slots.items()
                if name != SAMPLE_WEIGHT
            ]
            known = self._targets[bucket] = _Target(slots, writers, slots.get(SAMPLE_WEIGHT))
        return known

    def watch_waits(self, on_wait: OnWait) -> None:
        """Do nothing: records in memory are never waited for."""

    def close(self) -> None:
        """Do nothing: no resources are held."""
