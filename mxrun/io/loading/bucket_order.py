"""Order of records in buckets: a batch has records of one bucket, and batches are mixed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.io.dataset.buckets import Buckets
from mxrun.io.loading.order import LastBatch
from mxrun.runtime import random


@dataclass(frozen=True, eq=False)
class BucketedEpoch:
    """Batches of an epoch: records int64 [batches, batch size], bucket and valid rows of each."""

    records: NDArray[np.int64]
    buckets: NDArray[np.int64]
    valid: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BucketOrder:
    """Records of every batch of every epoch, a function of the seed and the epoch alone.

    Each bucket has batches of its own, of which the last one may be incomplete: `pad` fills it with
    the bucket's first records of the epoch, else it is dropped. With `shuffle` the records of a
    bucket have a new order in every epoch, and so have the batches of all buckets together; without
    it the batches of the shortest records come first.
    """

    buckets: Buckets
    batch_size: int
    shuffle: bool
    seed: int
    last_batch: LastBatch

    def check(self, name: str, place: SourceLocation | None) -> None:
        """Raise UserError if no bucket of the data set `name` has a batch."""
        if not self.batches:
            problem = f"no bucket of data set {name!r} has enough records for one batch"
            hint = "lower data.batch_size, write data.last_batch: pad, or give fewer buckets"
            counts = ", ".join(map(str, self._counts.tolist()))
            expected = f"a bucket with at least {self.batch_size} records"
            raise UserError(Diagnostic(problem, place, expected, counts, hint=hint))

    @property
    def _counts(self) -> NDArray[np.int64]:
        """Number of records of each bucket."""
        return np.bincount(self.buckets.numbers, minlength=len(self.buckets.lengths))

    @property
    def batches(self) -> int:
        """Number of batches of an epoch."""
        pads = self.batch_size - 1 if self.last_batch == "pad" else 0
        return int(((self._counts + pads) // self.batch_size).sum())

    def epoch(self, epoch: int) -> BucketedEpoch:
        """Return the batches of an epoch."""
        size, pads = self.batch_size, self.last_batch == "pad"
        records, numbers, valid = [], [], []
        for bucket in range(len(self.buckets.lengths)):
            members = np.flatnonzero(self.buckets.numbers == bucket)
            if self.shuffle:
                stream = f"shuffle/{epoch}/bucket/{bucket}"
                members = members[random.permutation(self.seed, stream, len(members))]
            count = (len(members) + (size - 1) * pads) // size
            if count:
                records.append(np.resize(members, (count, size)))
                numbers.append(np.full(count, bucket))
                left = len(members) - size * np.arange(count)
                valid.append(np.minimum(left, size))
        found = [np.concatenate(each) for each in (records, numbers, valid)]
        if self.shuffle:
            mixed = random.permutation(self.seed, f"shuffle/{epoch}/buckets", len(found[1]))
            found = [each[mixed] for each in found]
        return BucketedEpoch(*found)
