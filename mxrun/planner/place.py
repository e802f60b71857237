"""Placement of every value and workspace in the arena.

Needs: kernels and storage. Provides: a PhasePlan whose offsets start after the pinned region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec, align
from mxrun.graph.graph import Graph, MemoryClass, ValueId
from mxrun.graph.update_rule import parameter_of, partial_sum
from mxrun.planner.allocator.allocate import allocate
from mxrun.planner.inplace import Storage
from mxrun.planner.liveness import storage_lifetimes, workspace_bytes
from mxrun.planner.plan import Block, PhasePlan

# Order of the pinned region; io slots come last.
_PINNED_ORDER = (
    MemoryClass.PARAMETERS,
    MemoryClass.GRADIENTS,
    MemoryClass.OPTIMIZER,
    MemoryClass.AUXILIARY,
    MemoryClass.CARRIED,
    MemoryClass.CONSTANTS,
    MemoryClass.IO,
)


def place_pinned(
    graphs: Sequence[Graph],
    staged: Mapping[str, TensorSpec] | None = None,
    partial_sums: int = 0,
    alike: bool = False,
) -> tuple[Block, ...]:
    """Return one block per source of any phase, packed from offset 0 by class, then in graph order.

    A source has the size of its largest tensor: phases over shorter sequences use its beginning.
    staged: further io tensors, which no graph reads; they come last. partial_sums: number of blocks
    of the size of all gradients, named by `partial_sum`. alike: whether the parameters that have
    gradients come first, in the order of these.
    """
    kinds: dict[str, MemoryClass] = {}
    sizes: dict[str, int] = {}
    for graph in graphs:
        for name, value in graph.sources.items():
            if name in graph.within:
                continue
            kinds.setdefault(name, graph.values[value].memory_class)
            sizes[name] = max(sizes.get(name, 0), graph.block_bytes(value))
    if alike:
        trained = [parameter_of(name) for name in kinds if kinds[name] is MemoryClass.GRADIENTS]
        kinds = {name: kinds[name] for name in dict.fromkeys((*trained, *kinds))}
    gradients = sum(sizes[name] for name in kinds if kinds[name] is MemoryClass.GRADIENTS)
    for level in range(partial_sums):
        kinds[partial_sum(level)] = MemoryClass.GRADIENTS
        sizes[partial_sum(level)] = gradients
    for name, spec in (staged or {}).items():
        kinds[name], sizes[name] = MemoryClass.IO, align(spec.nbytes, graphs[0].alignment)
    blocks = []
    offset = 0
    for kind in _PINNED_ORDER:
        for name in (name for name in kinds if kinds[name] is kind):
            blocks.append(
                Block(name, kind, offset=offset, nbytes=sizes[name], first=0, last=0, values=())
            )
            offset += sizes[name]
    return tuple(blocks)


@dataclass(frozen=True)
class _Need:
    """Block before placement; `key` is the root value of its storage, or the name of a step."""

    key: ValueId | str
    name: str
    memory_class: MemoryClass
    nbytes: int
    first: int
    last: int
    values: tuple[ValueId, ...]


def place(
    name: str, graph: Graph, storage: Storage, pinned: tuple[Block, ...], reuse: bool = True
) -> PhasePlan:
    """Place one phase; if `reuse` is false, every block is live during all steps."""
    base = sum(block.nbytes for block in pinned)
    needs = [*_storage_needs(graph, storage), *_scratch_needs(graph)]
    steps = len(graph.steps)
    first = [need.first if reuse else 0 for need in needs]
    last = [need.last if reuse else steps for need in needs]
    allocation = allocate([need.nbytes for need in needs], first, last)
    blocks = tuple(
        Block(
            need.name,
            need.memory_class,
            offset=base + offset,
            nbytes=need.nbytes,
            first=begin,
            last=end,
            values=need.values,
        )
        for need, offset, begin, end in zip(needs, allocation.offsets, first, last, strict=True)
    )
    offset_by_key: dict[ValueId | str, int] = {
        need.key: block.offset for need, block in zip(needs, blocks, strict=True)
    }
    by_name = {block.name: block.offset for block in pinned}
    for source, value in graph.sources.items():
        part = graph.within.get(source)
        offset_by_key[value] = (
            by_name[source] if part is None else by_name[part.tensor] + part.begin
        )
    return PhasePlan(
        name=name,
        graph=graph,
        offsets={
            value: offset_by_key[root]
            + (storage.parts[value].begin if value in storage.parts else 0)
            for value, root in storage.root.items()
            if root in offset_by_key
        },
        parts=storage.parts,
        scratch={step.name: offset_by_key.get(step.name, 0) for step in graph.steps},
        blocks=blocks,
        hints=storage.hints,
        reusable_bytes=allocation.arena_bytes,
        lower_bound_bytes=allocation.lower_bound_bytes,
        proved_bytes=allocation.proved_bytes,
        naive_bytes=_naive(graph),
        in_place_only_bytes=sum(need.nbytes for need in needs),
    )


def _storage_needs(graph: Graph, storage: Storage) -> list[_Need]:
    """Return one block per storage that is not pinned."""
    members: dict[ValueId, list[ValueId]] = {}
    for step in graph.steps:
        for value in step.writes:
            members.setdefault(storage.root[value], []).append(value)
    return [
        _Need(
            root,
            graph.values[root].name,
            graph.values[root].memory_class,
            nbytes,
            first,
            last,
            tuple(members[root]),
        )
        for root, (first, last, nbytes) in storage_lifetimes(graph, storage).items()
    ]


def _scratch_needs(graph: Graph) -> list[_Need]:
    needs = []
    for position, nbytes in workspace_bytes(graph):
        name = graph.steps[position].name
        kind = MemoryClass.WORKSPACE
        needs.append(_Need(name, f"{name}_scratch", kind, nbytes, position, position + 1, ()))
    return needs


def _naive(graph: Graph) -> int:
    """Return the bytes without sharing or reuse; a state and its updated version count once."""
    tensors = sum(
        graph.block_bytes(value)
        for step in graph.steps
        for value in step.writes
        if value not in graph.mutations
    )
    return tensors + sum(nbytes for _, nbytes in workspace_bytes(graph))
