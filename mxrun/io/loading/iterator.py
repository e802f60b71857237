"""Iterators that write batches, in order or shuffled, into the plan's memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from mxrun.base.errors import InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.loading.batch import SAMPLE_WEIGHT, Batch, is_label
from mxrun.io.loading.order import BatchOrder
from mxrun.io.loading.statistics import Work
from mxrun.runtime.profiler import Event

# I/O slots of a plan by input name: C-contiguous views into the arena.
Slots = Mapping[str, NDArray[Any]]
# Callback invoked several times a second while a batch is awaited, with the seconds for which the
# same record has been read and the record's name. An exception that it raises ends the wait.
OnWait = Callable[[float, str], None]


class RecordError(UserError):
    """Error for a record of a data set that cannot be read or transformed."""


class DataIterator(ABC):
    """Source of batches of one fixed size; MXNet's DataIter, but it writes into given slots.

    Each batch comes in `parts` equal parts (1 if it is undivided); `batch_size` is the number of
    rows written at a time, that of one part. `first_part`: number of the first of them, if other
    ranks read parts before it. `provide_data` and `provide_label` are the
    specs of a batch's arrays by name, including the batch axis; a batch also holds `sample_weight`
    float32 [batch size]. `waited_seconds` is the total time that `next_into` has waited for
    records. `reads_records`: whether the iterator may wait for records and raise RecordError.
    `is_stream`: whether each row of a batch continues that of the batch before, from the first
    batch of an epoch to the last. `bucket_lengths`: those of the buckets, of which each batch has
    one; empty without buckets.
    """

    waited_seconds: float = 0.0
    reads_records: bool = False
    is_stream: bool = False
    bucket_lengths: tuple[int, ...] = ()
    parts: int = 1
    first_part: int = 0
    batch_size: int
    provide_data: dict[str, TensorSpec]
    provide_label: dict[str, TensorSpec]

    @abstractmethod
    def batches(self, epoch: int) -> int:
        """Return the number of batches of `epoch`."""

    @property
    @abstractmethod
    def period(self) -> int:
        """Number of epochs after which the sequence of numbers of batches repeats."""

    @abstractmethod
    def reset(self, epoch: int, batch: int = 0) -> None:
        """Go to `batch` of `epoch`, counted from 0; a new iterator is at batch 0 of epoch 0.

        The content of a batch is a function of seed, epoch and batch, independent of earlier reads.
        """

    @abstractmethod
    def next_into(self, slots: Slots) -> Batch | None:
        """Write the next batch, or part of one, into the given `slots`; return None after the last.

        Raises RecordError naming the record if it cannot be read; propagates exceptions of the
        callback given to `watch_waits`.
        """

    @abstractmethod
    def watch_waits(self, on_wait: OnWait) -> None:
        """Register `on_wait` to be called while the caller's thread waits for records."""

    def work(self) -> Work:
        """Return the work of each stage of loading so far; empty if records are in memory."""
        return {}

    def record(self, sink: Callable[[Event], None] | None) -> None:
        """Pass the time spans of the functions that make records to `sink`, if there are any.

        None ends that.
        """
        return

    @abstractmethod
    def close(self) -> None:
        """Release the iterator's resources; it cannot be used afterwards. A second call does
        nothing.
        """

    @property
    def bucket(self) -> int:
        """Number of the bucket of the next batch; 0 without buckets."""
        return 0

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Specs of all arrays of a batch: data, labels and sample weights."""
        weight = TensorSpec((self.batch_size,))
        return {**self.provide_data, **self.provide_label, SAMPLE_WEIGHT: weight}


def provided(
    records: Mapping[str, TensorSpec], batch_size: int
) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
    """Return the specs of a batch of `records`, divided into data and labels."""
    specs = batched(records, batch_size)
    data = {name: spec for name, spec in specs.items() if not is_label(name)}
    return data, {name: spec for name, spec in specs.items() if is_label(name)}


def batched(records: Mapping[str, TensorSpec], batch_size: int) -> dict[str, TensorSpec]:
    """Return the specs of `batch_size` stacked records."""
    return {
        name: TensorSpec((batch_size, *spec.shape), spec.dtype) for name, spec in records.items()
    }


def check_slots(slots: Slots, specs: Mapping[str, TensorSpec]) -> None:
    """Raise InternalError for a slot whose shape, dtype or layout differs from the batch's.

    NumPy would otherwise copy or refuse.
    """
    for name, slot in slots.items():
        if name not in specs:
            raise InternalError(f"the iterator has no data for slot {name!r}")
        actual = TensorSpec(slot.shape, slot.dtype.name)
        if actual != specs[name] or not slot.flags.c_contiguous:
            raise InternalError(f"slot {name!r} is {actual}, the batch {specs[name]} in C order")


class OrderedIterator(DataIterator):
    """Iterator whose batches follow a `BatchOrder`."""

    def __init__(self, dataset: Dataset, order: BatchOrder) -> None:
        """Raises UserError if `order` leaves no batch of the data set."""
        order.check(dataset.name, dataset.place)
        self._batches = order
        self.parts, self.batch_size = order.own_parts, order.part_size
        self.first_part = order.first_part
        self.is_stream = order.is_stream
        # Slots of the last batch, which need no further check.
        self._checked: Slots | None = None

    def batches(self, epoch: int) -> int:
        """Return the number of batches of `epoch`."""
        return self._batches.batches(epoch)

    @property
    def period(self) -> int:
        """Number of epochs after which the sequence of numbers of batches repeats."""
        return self._batches.period
