"""Gradients whose memory something else reads or changes during a backward.

A backward program writes the gradients of variables while it still reads head gradients and saved
tensors. Where they share memory, a gradient is computed in memory of its own and stored afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache

from mxrun.base.errors import Diagnostic, UserError
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.chunk import Chunk
from mxrun.imperative.calls.invoke import invoke
from mxrun.imperative.differentiation.backward import ADD, WRITE
from mxrun.imperative.differentiation.differentiate import RecordedGraph, Target, new_array
from mxrun.imperative.differentiation.tape import MarkedVariable, RecordedCall
from mxrun.operator.register import AnyProperty, create

# Part of a chunk: first byte, byte after the last.
Bytes = tuple[int, int]


class SeparateGradients:
    """Targets that are computed in memory of their own, and stored in the order of variables."""

    def __init__(self, stored: Mapping[MarkedVariable, Target]) -> None:
        self._pairs = [
            (target, Target(new_array(target.array.context, variable.shape, variable.dtype)))
            for variable, target in stored.items()
        ]
        self.targets = dict(zip(stored, (computed for _, computed in self._pairs), strict=True))

    def store(self) -> None:
        """Write the gradients to the targets, or add them; while nothing is recorded."""
        for stored, computed in self._pairs:
            if stored.request == WRITE:
                invoke(_operator("_copy"), [computed.array], [stored.array])
            elif computed.is_reached:
                arrays = [stored.array, computed.array]
                invoke(_operator("elemwise_add"), arrays, [stored.array])


def separate(
    graph: RecordedGraph,
    heads: Sequence[NDArrayBase],
    targets: MutableMapping[MarkedVariable, Target],
) -> SeparateGradients | None:
    """Replace the targets that others overlap; return their gradients, which are to be stored.

    heads: the gradients of the heads. Returns None if there is none. Raises UserError if gradients
    of two variables overlap and one of them is not added: the result would depend on the order.
    """
    written = {target.array.chunk for target in targets.values()}
    if (
        not graph.functions
        and len(written) == len(targets)
        and written.isdisjoint([head.chunk for head in heads])
        and written.isdisjoint(_saved_chunks(graph.calls))
    ):
        # The usual case, in which nothing is shared.
        return None
    # A function's backward is Python code, which may read any array.
    found = set(targets) if graph.functions else _read(graph, heads, targets)
    found |= _shared(targets)
    if not found:
        return None
    separated = SeparateGradients({node: targets[node] for node in targets if node in found})
    targets.update(separated.targets)
    return separated


def _shared(targets: Mapping[MarkedVariable, Target]) -> set[MarkedVariable]:
    """Return the variables whose gradients overlap with each other."""
    by_chunk: dict[Chunk, list[MarkedVariable]] = {}
    for variable, target in targets.items():
        by_chunk.setdefault(target.array.chunk, []).append(variable)
    found: set[MarkedVariable] = set()
    for together in by_chunk.values():
        # In the order of their first bytes, one overlaps with the farthest of those before.
        ordered = sorted(together, key=lambda node: targets[node].array.offset)
        farthest = ordered[0]
        for variable in ordered[1:]:
            array, before = targets[variable].array, targets[farthest].array
            if array.nbytes and array.offset < before.offset + before.nbytes:
                _require_added(targets[farthest], targets[variable])
                found |= {farthest, variable}
            if array.offset + array.nbytes > before.offset + before.nbytes:
                farthest = variable
    return found


def _require_added(*targets: Target) -> None:
    for target in targets:
        if target.request != ADD:
            raise UserError(
                Diagnostic(
                    "the gradients of two variables share memory",
                    expected=f"grad_req {ADD} for both",
                    got=", ".join(repr(each.request) for each in targets),
                    hint="give each variable a gradient of its own",
                )
            )


def _read(
    graph: RecordedGraph,
    heads: Iterable[NDArrayBase],
    targets: Mapping[MarkedVariable, Target],
) -> set[MarkedVariable]:
    """Return the variables whose gradients overlap with what backward programs read."""
    chunks = {target.array.chunk for target in targets.values()}
    read: dict[Chunk, list[Bytes]] = {}
    for head in heads:
        if head.chunk in chunks:
            read.setdefault(head.chunk, []).append((head.offset, head.offset + head.nbytes))
    for call in graph.calls:
        for chunk, begin, end in _saved(call, chunks):
            read.setdefault(chunk, []).append((begin, end))
    return {
        variable
        for variable, target in targets.items()
        if any(_overlaps(target.array, part) for part in read.get(target.array.chunk, ()))
    }


def _saved_chunks(calls: Iterable[RecordedCall]) -> list[Chunk]:
    return [
        place[0] for call in calls for place in (*call.data, *call.outputs) if place is not None
    ]


def _saved(call: RecordedCall, chunks: set[Chunk]) -> Iterator[tuple[Chunk, int, int]]:
    """Yield the saved tensors in some chunks: the chunk, and the bytes in it."""
    prepared = call.prepared
    for saved, specs in (
        (call.data, prepared.inputs),
        (call.outputs, prepared.output_specs),
    ):
        for index, place in enumerate(saved):
            if place is not None and place[0] in chunks:
                chunk, offset = place
                yield chunk, offset, offset + specs[index].nbytes


def _overlaps(array: NDArrayBase, part: Bytes) -> bool:
    begin, end = part
    return max(begin, array.offset) < min(end, array.offset + array.nbytes)


@cache
def _operator(name: str) -> AnyProperty:
    return create(name, {})
