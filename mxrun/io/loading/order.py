"""Order of records: the rows of every batch as a function of seed, epoch and position alone."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, InternalError, SourceLocation, UserError
from mxrun.io.loading.sampling import Balanced, ContiguousRows, Shuffle, occurrences, record_order

LastBatch = Literal["pad", "discard", "roll_over"]


@dataclass(frozen=True)
class BatchOrder:
    """Record numbers of every batch of every epoch; `last_batch` has the values of MXNet's
    NDArrayIter.

    N records and batches of B may leave an incomplete last batch. `pad` fills it with the epoch's
    first records; `discard` drops it. `roll_over` moves its records to the next epoch: with epochs
    counted from 1, epoch e begins with the last carried(e) = (e - 1) N mod B records of the epoch
    before, in the order of that epoch. Epoch 0 has no carried records, as epoch 1, but its own
    order.

    shuffle: the order of the records of an epoch. parts: number of equal parts in which each batch
    is delivered, one after the other. Of these, `ranks` processes read equal shares side by side:
    this is the order of number `rank`. What a batch holds does not depend on them.

    With `ContiguousRows` a row reads L consecutive records: N / B of them, and `discard` and
    `roll_over` drop the records after the last row's; with `pad` L is rounded up, and the last rows
    may end before the others.
    """

    count: int
    batch_size: int
    shuffle: Shuffle = False
    seed: int = 0
    last_batch: LastBatch = "pad"
    parts: int = 1
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.count < 1:
            raise InternalError(f"batches of {self.batch_size} out of {self.count} records")
        if self.parts < 1 or self.batch_size % self.parts or self.parts % self.ranks:
            raise InternalError(
                f"batches of {self.batch_size} in {self.parts} parts for {self.ranks} ranks"
            )

    @property
    def part_size(self) -> int:
        """Number of rows of one part of a batch."""
        return self.batch_size // self.parts

    @property
    def own_parts(self) -> int:
        """Number of parts of a batch that are delivered here."""
        return self.parts // self.ranks

    @property
    def first_part(self) -> int:
        """Number of the first of them, among all parts of a batch."""
        return self.rank * self.own_parts

    @property
    def own_rows(self) -> int:
        """Number of rows of a batch that are delivered here."""
        return self.batch_size // self.ranks

    def check(self, name: str, place: SourceLocation | None) -> None:
        """Raise UserError if the data set `name` has too few records for one full batch.

        With `pad` no batch needs to be full.
        """
        if self.last_batch == "pad" or self.count >= self.batch_size:
            return
        raise UserError(
            Diagnostic(
                f"data set {name!r} has too few records for one batch, and last_batch: "
                f"{self.last_batch} uses full batches only",
                place,
                f"at least {self.batch_size} records",
                str(self.count),
                hint="lower data.batch_size or write data.last_batch: pad",
            )
        )

    def carried(self, epoch: int) -> int:
        """Return the number of records of the previous epoch with which `epoch` begins."""
        return max(epoch - 1, 0) * self.count % self.batch_size if self._rolls else 0

    @property
    def is_stream(self) -> bool:
        """Whether each row goes on where it ended in the batch before."""
        return isinstance(self.shuffle, ContiguousRows)

    def batches(self, epoch: int) -> int:
        """Return the number of batches of `epoch`."""
        records = self.carried(epoch) + self.count
        if self.last_batch == "pad":
            return -(-records // self.batch_size)
        return records // self.batch_size

    @property
    def period(self) -> int:
        """Number of epochs after which the sequence of numbers of batches repeats."""
        return self.batch_size // math.gcd(self.batch_size, self.count) if self._rolls else 1

    @property
    def longest(self) -> int:
        """Largest number of rows of an epoch that are delivered here, including padding."""
        if self.last_batch == "pad":
            return self.batches(0) * self.own_rows
        carried = self.batch_size - 1 if self._rolls else 0
        return (carried + self.count) // self.batch_size * self.own_rows

    def indices(self, epoch: int) -> NDArray[np.int64]:
        """Return the record number of every row of `epoch` that is delivered here.

        int64 [batches * own rows].
        """
        return self._delivered(self._indices(epoch))

    def _delivered(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the values of the rows that are delivered here, of those of all rows."""
        if self.ranks == 1:
            return rows
        shares = rows.reshape(-1, self.ranks, self.own_rows)
        return np.ascontiguousarray(shares[:, self.rank]).reshape(-1)

    def _indices(self, epoch: int) -> NDArray[np.int64]:
        """Return the record number of every row of `epoch`: int64 [batches * batch size]."""
        if self.is_stream:
            length = self.batches(epoch)
            order = np.arange(length)[:, np.newaxis] + length * np.arange(self.batch_size)
            # Those beyond the last record are padding.
            return np.where(order < self.count, order, order % self.count).reshape(-1)
        order = self._permutation(epoch)
        if carried := self.carried(epoch):
            order = np.concatenate((self._permutation(epoch - 1)[-carried:], order))
        return np.resize(order, self.batches(epoch) * self.batch_size)

    def valid(self, part: int) -> int:
        """Return the number of rows that are records, not padding, in the part at position `part`.

        Positions count the parts of an epoch that are delivered here; in undivided batches a part
        is a batch.
        """
        batch, number = divmod(part, self.own_parts)
        part = batch * self.parts + self.first_part + number
        if self.last_batch != "pad":
            return self.part_size
        if self.is_stream:
            batch, number = divmod(part, self.parts)
            rows = -(-(self.count - batch) // self.batches(0))
            return max(0, min(self.part_size, rows - number * self.part_size))
        return max(0, min(self.part_size, self.count - part * self.part_size))

    def draw_epochs(self, epoch: int) -> NDArray[np.int64]:
        """Return the number that selects the random draws of each row that is delivered here.

        It is the epoch whose order has put the record there. A record that is drawn again in that
        epoch has other draws: 2^32 is added for each time before.
        """
        carried, rows = self.carried(epoch), self.batches(epoch) * self.batch_size
        epochs = np.full(carried + self.count, epoch, np.int64)
        epochs[:carried] = epoch - 1
        if isinstance(self.shuffle, Balanced):
            epochs[carried:] += occurrences(self._permutation(epoch)) << 32
            if carried:
                epochs[:carried] += occurrences(self._permutation(epoch - 1))[-carried:] << 32
        return self._delivered(np.resize(epochs, rows))

    @property
    def _rolls(self) -> bool:
        return self.last_batch == "roll_over" and not self.is_stream

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        return record_order(self.shuffle, self.seed, epoch, self.count)
