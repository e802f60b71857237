"""Records of an epoch and their order: a function of the seed and the epoch alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.runtime import random

Order = NDArray[np.int64]


@dataclass(frozen=True)
class ShuffleWindow:
    """Shuffle in which no record moves by more than `size` places.

    Records are then read nearly in the order of their files.
    """

    size: int


@dataclass(frozen=True, eq=False)
class Balanced:
    """Sampling that draws each class equally often, in random order.

    classes: class number of each record, [records]. An epoch has as many draws as there are
    records; numbers of draws of two classes differ by at most 1. Records of a class are drawn
    equally often, but for 1.
    """

    classes: NDArray[Any]


@dataclass(frozen=True)
class ContiguousRows:
    """Order in which row b of a batch reads the b-th of equal parts of all records.

    Batch i holds the record at place i of each part, so that each row goes on where it ended in the
    batch before.
    """


# False: the order of the files; True: any order, each equally likely.
Shuffle = bool | ShuffleWindow | Balanced | ContiguousRows


def record_order(shuffle: Shuffle, seed: int, epoch: int, count: int) -> Order:
    """Return the record numbers of `epoch`, int64 [count]; a permutation unless it is `Balanced`.

    In a window of w, record i gets the key i + w u with u uniform in [0, 1), and the keys are
    sorted: all records before i - w are read before it and all after i + w are read after it.
    """
    stream = f"shuffle/{epoch}"
    if isinstance(shuffle, Balanced):
        return _balanced(shuffle.classes, seed, stream)
    if isinstance(shuffle, ShuffleWindow):
        keys = random.uniform(seed, stream, (count,))
        keys *= shuffle.size
        keys += np.arange(count)
        return np.argsort(keys, kind="stable").astype(np.int64, copy=False)
    if shuffle is True:
        return random.permutation(seed, stream, count)
    return np.arange(count, dtype=np.int64)


def _balanced(classes: NDArray[Any], seed: int, stream: str) -> Order:
    """Return as many draws as there are records, in random order, equally many of each class."""
    names, numbers, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    count, kinds = len(classes), len(names)
    draws = np.full(kinds, count // kinds)
    draws[random.permutation(seed, f"{stream}/classes", kinds)[: count % kinds]] += 1
    members = np.argsort(numbers, kind="stable")
    drawn = []
    for each, (end, size) in enumerate(zip(np.cumsum(sizes), sizes, strict=True)):
        rounds = -(-int(draws[each]) // int(size))
        # All records of the class, in a new order for each round; the last one is cut off.
        ranks = random.uniform(seed, f"{stream}/{each}", (rounds, int(size))).argsort(kind="stable")
        drawn.append(members[end - size : end][ranks.reshape(-1)[: draws[each]]])
    order = np.concatenate(drawn)[random.permutation(seed, stream, count)]
    return order.astype(np.int64, copy=False)


def occurrences(order: Order) -> Order:
    """Return how often the record of each position occurs before it in `order`, int64 [records]."""
    by_record = np.argsort(order, kind="stable")
    ordered = order[by_record]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    found = np.empty(len(order), np.int64)
    found[by_record] = np.arange(len(order)) - first
    return found
