"""Verification of a graph and of a placed plan: invariants that hold after every pass."""

from __future__ import annotations

import itertools

from mxrun.base.dtype import item_size
from mxrun.base.errors import InternalError
from mxrun.graph.graph import Graph, Step, ValueId
from mxrun.planner.plan import Block, PhasePlan, Plan


def verify_graph(graph: Graph, after: str) -> Graph:
    """Check single assignment, inputs before use, and mutations after all other reads.

    Raises InternalError naming the pass after which a check fails.
    """
    written = set(graph.sources.values())
    names: set[str] = set()
    for step in graph.steps:
        if step.name in names:
            raise InternalError(f"after {after}: two steps are named {step.name!r}")
        names.add(step.name)
        for value in step.reads:
            if value not in written:
                name = graph.values[value].name
                raise InternalError(
                    f"after {after}: {step.name!r} reads {name!r} before it is made"
                )
        for value in step.writes:
            if value in written:
                name = graph.values[value].name
                raise InternalError(f"after {after}: {name!r} has two writers, {step.name!r} last")
            written.add(value)
        _verify_kernel(graph, step, after)
    missing = [name for name, value in graph.results.items() if value not in written]
    if missing:
        raise InternalError(f"after {after}: nothing makes the result {missing[0]!r}")
    _verify_mutations(graph, after)
    return graph


def verify_plan(plan: Plan) -> Plan:
    """Check that blocks live at the same step do not overlap and that none leaves the arena.

    Raises InternalError.
    """
    _verify_disjoint(list(plan.pinned), "pinned")
    for phase in plan.phases.values():
        for block in phase.blocks:
            if block.offset < plan.pinned_bytes or block.end > plan.planned_bytes:
                raise InternalError(f"{phase.name}: block {block.name!r} leaves the arena")
            if block.offset % plan.device.alignment or block.nbytes % plan.device.alignment:
                raise InternalError(f"{phase.name}: block {block.name!r} is not aligned")
        for position in range(len(phase.steps)):
            live = [block for block in phase.blocks if block.first <= position < block.last]
            _verify_disjoint(live, f"{phase.name} step {position}")
        _verify_offsets(phase)
        _verify_parts(phase)
    return plan


def _verify_kernel(graph: Graph, step: Step, after: str) -> None:
    if step.kernel is None:
        return
    for value, spec in zip(step.inputs, step.kernel.inputs, strict=True):
        if value is not None and spec is not None and not graph.spec(value).same_bytes(spec):
            raise InternalError(
                f"after {after}: {step.name!r} requires {spec}, but gets {graph.spec(value)}"
            )
    outputs = (*step.kernel.outputs, *step.kernel.extra_outputs)
    for value, spec in zip(step.outputs, outputs, strict=True):
        if value is not None and spec is None:
            raise InternalError(f"after {after}: {step.name!r} does not make all its outputs")


def _verify_mutations(graph: Graph, after: str) -> None:
    """Check that a step that overwrites a value comes after every other reader of it."""
    written_at = {
        value: position for position, step in enumerate(graph.steps) for value in step.writes
    }
    for new, old in graph.mutations.items():
        late = [step.name for step in graph.steps[written_at[new] + 1 :] if old in step.reads]
        if late:
            name = graph.values[old].name
            raise InternalError(f"after {after}: {late[0]!r} reads {name!r} after its update")


def _verify_disjoint(blocks: list[Block], where: str) -> None:
    ordered = sorted(blocks, key=lambda block: block.offset)
    for lower, upper in itertools.pairwise(ordered):
        if lower.end > upper.offset:
            raise InternalError(f"{where}: blocks {lower.name!r} and {upper.name!r} overlap")


def _verify_offsets(phase: PhasePlan) -> None:
    for step in phase.steps:
        for value in (*step.reads, *step.writes):
            if value not in phase.offsets and phase.graph.spec(value).nbytes:
                name = phase.graph.values[value].name
                raise InternalError(f"{phase.name}: {name!r} has no offset")


def _verify_parts(phase: PhasePlan) -> None:
    """Check that every slice is within its parent buffer and overlaps no unrelated slice."""
    places: dict[tuple[ValueId, int], list[tuple[int, int, str]]] = {}
    for value, part in phase.parts.items():
        spec, name = phase.graph.spec(value), phase.graph.values[value].name
        size, rows = item_size(spec.dtype), spec.elements // part.width if part.pitch else 1
        row_bytes = part.width * size if part.pitch else spec.nbytes
        end = part.begin + (rows - 1) * part.pitch * size + row_bytes
        if end > phase.graph.spec(part.parent).nbytes:
            raise InternalError(f"{phase.name}: {name!r} exceeds its parent buffer")
        place = (part.begin, part.begin + row_bytes, name)
        places.setdefault((part.parent, part.pitch), []).append(place)
    for one in places.values():
        for (begin, end, name), (lower, upper, other) in itertools.combinations(sorted(one), 2):
            if begin < lower < end < upper:
                raise InternalError(f"{phase.name}: slices {name!r} and {other!r} overlap")
