"""Buckets of records by length, so that a batch holds records of similar lengths."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass


@runtime_checkable
class BucketOptions(Protocol):
    """Options of a data set whose records may be in buckets.

    buckets: lengths below that of a record, ascending. padded: the fields that have these lengths.
    """

    @property
    def buckets(self) -> tuple[int, ...]:
        """Lengths of the buckets; empty without them."""

    @property
    def padded(self) -> tuple[str, ...]:
        """Names of the fields that are padded."""


@dataclass(frozen=True, eq=False)
class Buckets:
    """Buckets, of which each batch has one.

    lengths: ascending; what is after the length of a bucket in its records is padding. numbers: the
    bucket of each record, [records]. fields: the fields whose records a batch holds up to its
    bucket's length.
    """

    lengths: tuple[int, ...]
    numbers: NDArray[np.int64]
    fields: frozenset[str]

    @classmethod
    def of(cls, lengths: tuple[int, ...], records: NDArray[Any], fields: frozenset[str]) -> Buckets:
        """Return the buckets of records of these lengths: each in the shortest that holds it."""
        numbers = np.searchsorted(np.array(lengths), records).astype(np.int64)
        return cls(lengths, numbers, fields)
