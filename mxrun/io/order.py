"""Which records make up which batch: a function of seed, epoch and position, nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, InternalError, SourceLocation, UserError
from mxrun.runtime import random

LastBatch = Literal["pad", "discard", "roll_over"]


@dataclass(frozen=True)
class BatchOrder:
    """The records of every batch of every epoch; `last_batch` as MXNet's NDArrayIter has it.

    With N records and batches of B, a batch that N does not fill up is at the end of an epoch
    filled up with the epoch's first records (`pad`) or left out (`discard`). `roll_over` lets the
    rest begin the next epoch: epochs count from 1, and epoch e is begun by the last
    carried(e) = (e - 1) N mod B records of the epoch before, in that one's order. Epoch 0 is an
    epoch 1 with an order of its own.

    `parts`: in how many equal parts each batch is given, one after the other.
    """

    count: int
    batch_size: int
    shuffle: bool = False
    seed: int = 0
    last_batch: LastBatch = "pad"
    parts: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.count < 1:
            raise InternalError(f"batches of {self.batch_size} out of {self.count} records")
        if self.parts < 1 or self.batch_size % self.parts:
            raise InternalError(f"batches of {self.batch_size} in {self.parts} parts")

    @property
    def part_size(self) -> int:
        """Rows of one part of a batch."""
        return self.batch_size // self.parts

    def check(self, name: str, place: SourceLocation | None) -> None:
        """Raise UserError where the data set `name` has too few records to fill one batch."""
        if self.last_batch == "pad" or self.count >= self.batch_size:
            return
        raise UserError(
            Diagnostic(
                f"data set {name!r} does not fill one batch, and last_batch: {self.last_batch} "
                "gives full batches only",
                place,
                f"at least {self.batch_size} records",
                str(self.count),
                "lower data.batch_size or write data.last_batch: pad",
            )
        )

    def carried(self, epoch: int) -> int:
        """How many records of the epoch before begin `epoch`."""
        return max(epoch - 1, 0) * self.count % self.batch_size if self._rolls else 0

    def batches(self, epoch: int) -> int:
        """Number of batches of `epoch`."""
        records = self.carried(epoch) + self.count
        if self.last_batch == "pad":
            return -(-records // self.batch_size)
        return records // self.batch_size

    @property
    def period(self) -> int:
        """After how many epochs their numbers of batches repeat."""
        return self.batch_size // math.gcd(self.batch_size, self.count) if self._rolls else 1

    @property
    def longest(self) -> int:
        """The most rows that an epoch has, padding included."""
        if self.last_batch == "pad":
            return self.batches(0) * self.batch_size
        carried = self.batch_size - 1 if self._rolls else 0
        return (carried + self.count) // self.batch_size * self.batch_size

    def indices(self, epoch: int) -> NDArray[np.int64]:
        """The record of every row of `epoch`, batch after batch: int64 [batches * batch size]."""
        order = self._permutation(epoch)
        if carried := self.carried(epoch):
            order = np.concatenate((self._permutation(epoch - 1)[-carried:], order))
        return np.resize(order, self.batches(epoch) * self.batch_size)

    def valid(self, part: int) -> int:
        """How many rows are records, the rest padding, of an epoch's part at position `part`, which
        is a whole batch where these are not cut.
        """
        if self.last_batch != "pad":
            return self.part_size
        return max(0, min(self.part_size, self.count - part * self.part_size))

    def drawn_in(self, epoch: int, row: int) -> int:
        """The epoch in whose order the record at `row` of `epoch` was drawn."""
        return epoch - 1 if row < self.carried(epoch) else epoch

    @property
    def _rolls(self) -> bool:
        return self.last_batch == "roll_over"

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        if self.shuffle:
            return random.permutation(self.seed, f"shuffle/{epoch}", self.count)
        return np.arange(self.count, dtype=np.int64)
