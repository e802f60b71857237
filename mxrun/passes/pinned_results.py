"""Results at fixed places: pinned tensors whose memory is chosen when the plan is bound.

A result is written to its pinned tensor by the step that computes it. It is copied if that step
cannot write there: if the result is a view, is a source itself, or is another result as well.

Needs: kernels. Provides: the results in plain layout, and `mutations` of pinned tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, Step, StepKind, ValueId, writes
from mxrun.operator.register import create
from mxrun.passes.reorder_kernel import REORDER, reorder_kernel


@dataclass(frozen=True)
class PinnedTensor:
    """Pinned tensor of a result: its name and its class."""

    name: str
    memory_class: MemoryClass


def pinned_results(
    graph: Graph, targets: Mapping[str, PinnedTensor], device: DeviceDescription
) -> Graph:
    """Return the graph with results in pinned tensors, by the names of the results."""
    graph = with_early_reorders(graph)
    builder = GraphBuilder(graph)
    producer = graph.producer()
    taken: set[ValueId] = set()
    for result, target in targets.items():
        value = graph.results[result]
        pinned = builder.source(target.name, graph.spec(value), target.memory_class)
        step = producer.get(value)
        if step is None or step.is_view or value in {*taken, *graph.mutations}:
            value = _copied(builder, target, value, device)
        taken.add(value)
        builder.mutations[value] = pinned
        builder.results[result] = value
    return builder.build()


def _copied(
    builder: GraphBuilder, target: PinnedTensor, value: ValueId, device: DeviceDescription
) -> ValueId:
    """Insert a copy of a value directly after the step that writes it; return the copy."""
    spec = builder.values[value].spec
    copy = builder.value(f"{target.name}_copy", spec, target.memory_class)
    step = Step(
        name=f"{target.name}:copy",
        kind=StepKind.REORDER,
        prop=create(REORDER, {}),
        inputs=(value,),
        outputs=(copy,),
        requests=writes((copy,)),
        kernel=reorder_kernel(spec, spec, device),
    )
    positions = (at for at, each in enumerate(builder.steps) if value in each.writes)
    builder.steps.insert(next(positions, -1) + 1, step)
    return copy


def with_early_reorders(graph: Graph) -> Graph:
    """Return the graph with each reorder of a result directly after the step that it reads."""
    results = {*graph.results.values()}
    late = {
        step.reads[0]: step
        for step in graph.steps
        if step.kind is StepKind.REORDER and results.issuperset(step.writes)
    }
    moved = {id(step) for step in late.values()}
    steps: list[Step] = [late[value] for value in graph.sources.values() if value in late]
    for step in graph.steps:
        if id(step) not in moved:
            steps.append(step)
            steps += (late[value] for value in step.writes if value in late)
    return replace(graph, steps=tuple(steps))
