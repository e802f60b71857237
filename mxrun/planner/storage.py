"""Storage of every value, shared as far as that is permitted and does not raise peak memory.

Views and in-place sharing never cost memory. Concat in place saves the copies, but a slice occupies
the parent buffer from the first write of any slice to the last read of any. A concatenation is done
in place only if peak memory does not rise.

Needs: kernels. Provides: the storage of every value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.graph.graph import Graph, ValueId
from mxrun.planner.add_to import add_to
from mxrun.planner.concat_in_place import find_slices
from mxrun.planner.hint import Hint
from mxrun.planner.inplace import Storage, inplace
from mxrun.planner.liveness import live_bytes, storage_lifetimes

Bytes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sharing:
    """Optional kinds of sharing: in-place outputs, concat in place, and add-to for gradients."""

    in_place: bool = True
    concat_in_place: bool = True
    add_to: bool = True


def assign_storage(graph: Graph, sharing: Sharing) -> tuple[Graph, Storage]:
    """Return the graph after the add-to pass, and the storage of its values."""
    added = add_to(graph, sharing.add_to)
    return added.graph, storage_of(added.graph, sharing, added.hints)


def storage_of(graph: Graph, sharing: Sharing, decided: Iterable[Hint] = ()) -> Storage:
    """Return the storage with as many concatenations in place as do not raise peak memory.

    The choice is greedy: the change with the lowest resulting peak memory is made first.

    decided: hints that earlier stages took or refused.
    """
    found = find_slices(graph)
    otherwise = "peak memory would rise" if sharing.concat_in_place else "concat in place is off"
    plain = inplace(graph, sharing.in_place, found.of_parents((), otherwise), decided)
    if not sharing.concat_in_place or not found.parts:
        return plain
    joined = inplace(graph, sharing.in_place, found, decided)
    changes = list(_changes(graph, plain, joined))
    live = np.array(live_bytes(graph, plain))
    joined_values: set[ValueId] = set()
    while changes:
        best = min(changes, key=lambda change: int((live + change.live).max()))
        if (live + best.live).max() > live.max():
            break
        live += best.live
        joined_values |= best.values
        changes.remove(best)
    parents = {part.parent for part in found.parts.values()} & joined_values
    if not changes:
        return joined
    return inplace(graph, sharing.in_place, found.of_parents(parents, otherwise), decided)


@dataclass(frozen=True, eq=False)
class _Change:
    """Values whose storage changes together by concat in place, and the change in live bytes."""

    values: frozenset[ValueId]
    live: Bytes


def _changes(graph: Graph, plain: Storage, joined: Storage) -> Iterator[_Change]:
    """Yield the smallest sets of values that share no storage with other sets in either variant."""
    lives = [(storage, storage_lifetimes(graph, storage)) for storage in (plain, joined)]
    for values in _connected(plain, joined):
        live = np.zeros(len(graph.steps), np.int64)
        for sign, (storage, by_root) in zip((-1, 1), lives, strict=True):
            for root in {storage.root[value] for value in values} & by_root.keys():
                first, last, nbytes = by_root[root]
                live[first:last] += sign * nbytes
        yield _Change(frozenset(values), live)


def _connected(plain: Storage, joined: Storage) -> Iterable[list[ValueId]]:
    """Return the sets of values connected by shared storage in either variant.

    Only sets that contain a slice of a parent buffer are returned.
    """
    parent = dict(plain.root)

    def find(value: ValueId) -> ValueId:
        while parent[value] != value:
            value = parent[value]
        return value

    for value, root in joined.root.items():
        parent[find(value)] = find(root)
    sets: dict[ValueId, list[ValueId]] = {}
    for value in parent:
        sets.setdefault(find(value), []).append(value)
    return [values for values in sets.values() if any(value in joined.parts for value in values)]
