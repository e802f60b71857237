"""Slices of contiguous bytes that are shared out among ranks."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass

# Bytes of a cache line, of which slices are multiples.
_LINE = 64


@dataclass(frozen=True)
class Shard:
    """One of several ranks, `rank` of `ranks`, each of which has the states of its own slices."""

    rank: int
    ranks: int


def slice_bounds(nbytes: int, ranks: int) -> list[int]:
    """Return the bounds of the slices of `nbytes` bytes, one more than there are ranks.

    They are entire cache lines of the same number; the last slices may be shorter, or empty.
    """
    share = -(-nbytes // (ranks * _LINE)) * _LINE
    return [min(nbytes, share * rank) for rank in range(ranks + 1)]
