"""Batches in order or shuffled, written straight into the memory that the plan gave them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.io.batch import SAMPLE_WEIGHT, Batch, is_label
from mxrun.io.dataset import Dataset, Field
from mxrun.runtime import random

# The io slots of a plan by input name: C-contiguous views into the arena.
Slots = Mapping[str, NDArray[Any]]


class DataIterator(ABC):
    """A source of batches of one fixed size; MXNet's DataIter, writing where it is told.

    `provide_data` and `provide_label` name what a batch holds, with the batch axis in front; a
    batch also holds `sample_weight` float32 [batch size].
    """

    batch_size: int
    provide_data: dict[str, TensorSpec]
    provide_label: dict[str, TensorSpec]

    @abstractmethod
    def __len__(self) -> int:
        """Number of batches of an epoch."""

    @abstractmethod
    def reset(self, epoch: int) -> None:
        """Go to the first batch of `epoch`; the order depends on the seed and `epoch` alone."""

    @abstractmethod
    def next_into(self, slots: Slots) -> Batch | None:
        """Write the next batch into `slots` (those given, no others); None after the last."""

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """Everything a batch holds: data, labels and sample weights."""
        weight = TensorSpec((self.batch_size,))
        return {**self.provide_data, **self.provide_label, SAMPLE_WEIGHT: weight}


class ArrayIterator(DataIterator):
    """Iterates over a data set in memory; MXNet's NDArrayIter.

    Every epoch gives each record once. The last batch is filled up with the epoch's first records
    at sample weight 0. `next_into` allocates no array: rows are gathered into the slot, or where
    a field has a scale into a buffer of bytes, from which the slot is converted and scaled.
    Shuffling sorts one 64-bit draw per record at `reset`.
    """

    def __init__(
        self, dataset: Dataset, batch_size: int, *, shuffle: bool = False, seed: int = 0
    ) -> None:
        if batch_size < 1:
            raise InternalError(f"a batch of {batch_size} records")
        self.batch_size = batch_size
        specs = {
            name: TensorSpec((batch_size, *spec.shape), spec.dtype)
            for name, spec in dataset.specs.items()
        }
        self.provide_data = {name: spec for name, spec in specs.items() if not is_label(name)}
        self.provide_label = {name: spec for name, spec in specs.items() if is_label(name)}
        self._count = len(dataset)
        self._seed, self._shuffle = seed, shuffle
        self._gathers = {
            name: _Gather(column, batch_size) for name, column in dataset.fields.items()
        }
        self._order = np.arange(len(self) * batch_size, dtype=np.int64) % self._count
        self._indices = self._order.view()
        self._indices.setflags(write=False)
        self._position = 0
        self._checked: Slots | None = None
        self.reset(0)

    def __len__(self) -> int:
        return (self._count + self.batch_size - 1) // self.batch_size

    def reset(self, epoch: int) -> None:
        """Go to the first batch of `epoch`; the order depends on the seed and `epoch` alone."""
        self._position = 0
        if self._shuffle:
            order = random.permutation(self._seed, f"shuffle/{epoch}", self._count)
            self._order[: self._count] = order
            padding = len(self._order) - self._count
            self._order[self._count :] = np.resize(order, padding)

    def next_into(self, slots: Slots) -> Batch | None:
        """Write the next batch into `slots` (those given, no others); None after the last."""
        if slots is not self._checked:
            self._check(slots)
        start = self._position
        if start >= self._count:
            return None
        self._position = start + self.batch_size
        indices = self._indices[start : self._position]
        valid = min(self.batch_size, self._count - start)
        for name, slot in slots.items():
            if name == SAMPLE_WEIGHT:
                slot.fill(1.0)
                slot[valid:] = 0.0
            else:
                self._gathers[name].write(indices, slot)
        return Batch(valid, indices)

    def _check(self, slots: Slots) -> None:
        """A slot of another shape, type or stride would make NumPy copy or refuse: say which."""
        specs = self.specs
        for name, slot in slots.items():
            if name not in specs:
                raise InternalError(f"the iterator has nothing for slot {name!r}")
            held = TensorSpec(slot.shape, slot.dtype.name)
            if held != specs[name] or not slot.flags.c_contiguous:
                raise InternalError(f"slot {name!r} is {held}, the batch {specs[name]} in C order")
        self._checked = slots


class _Gather:
    """Copies chosen records of one field into a slot, converting where the field has a scale."""

    def __init__(self, column: Field, batch_size: int) -> None:
        self._records = np.ascontiguousarray(column.records)
        self._scale = None if column.scale is None else np.float32(column.scale)
        rows = 0 if column.scale is None else batch_size
        self._bytes = np.empty((rows, *self._records.shape[1:]), self._records.dtype)

    def write(self, indices: NDArray[np.int64], slot: NDArray[Any]) -> None:
        """slot[row] = record[indices[row]], times the scale in float32.

        `clip` never clips here: the other mode of `take` gathers into a hidden buffer first.
        Converting and scaling apart is twice as fast as one mixed-type product, which NumPy runs
        through buffers.
        """
        if self._scale is None:
            self._records.take(indices, axis=0, out=slot, mode="clip")
            return
        self._records.take(indices, axis=0, out=self._bytes, mode="clip")
        np.copyto(slot, self._bytes)
        np.multiply(slot, self._scale, out=slot)
