"""Liveness: lifetimes of a phase's storage and workspaces, and live bytes at each step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from mxrun.base.tensor import align
from mxrun.graph.graph import Graph, ValueId
from mxrun.planner.inplace import Storage


def lifetimes_to_live_bytes(lives: Iterable[tuple[int, int, int]], steps: int) -> list[int]:
    """Return the live bytes at each of `steps` steps.

    lives: (first, last, bytes), live during the half-open interval [first, last).
    """
    changes = [0] * (steps + 1)
    for first, last, nbytes in lives:
        changes[first] += nbytes
        changes[min(last, steps)] -= nbytes
    return list(itertools.accumulate(changes[:-1]))


def storage_lifetimes(graph: Graph, storage: Storage) -> dict[ValueId, tuple[int, int, int]]:
    """Return {root: (first, last, bytes)} with lifetime [first, last) of all storage not pinned.

    A lifetime begins with the first write and ends after the last use; results live to the last
    step.
    """
    roots = storage.root
    first: dict[ValueId, int] = {}
    last: dict[ValueId, int] = {}
    sizes: dict[ValueId, int] = {}
    for position, step in enumerate(graph.steps):
        for value in step.writes:
            root, nbytes = roots[value], graph.block_bytes(value)
            if root not in first:
                first[root], sizes[root] = position, nbytes
            elif nbytes > sizes[root]:
                sizes[root] = nbytes
            last[root] = position + 1
        for value in step.reads:
            last[roots[value]] = position + 1
    for value in graph.results.values():
        last[roots[value]] = len(graph.steps)
    given = set(graph.sources.values())
    return {
        root: (begin, last[root], sizes[root])
        for root, begin in first.items()
        if root not in given and sizes[root]
    }


def live_bytes(graph: Graph, storage: Storage) -> list[int]:
    """Return the reusable bytes live at each step, workspaces included, before placement."""
    live = lifetimes_to_live_bytes(storage_lifetimes(graph, storage).values(), len(graph.steps))
    for position, nbytes in workspace_bytes(graph):
        live[position] += nbytes
    return live


def peak_bytes(graph: Graph, storage: Storage) -> int:
    """Return the peak memory in bytes: the maximum of `live_bytes`."""
    return max(live_bytes(graph, storage), default=0)


def workspace_bytes(graph: Graph) -> Iterator[tuple[int, int]]:
    """Yield (position, bytes) of each step whose kernel needs a workspace while it runs."""
    for position, step in enumerate(graph.steps):
        if step.kernel is not None and step.kernel.workspace_bytes:
            yield position, align(step.kernel.workspace_bytes, graph.alignment)
