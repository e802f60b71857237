"""Gradients at fixed places side by side, for the exchange between contexts.

The gradient of each trained parameter gets a pinned tensor of its own, in the order in which
backward makes them, so that gradients which are complete at the same time are adjacent. A gradient
is written there by the step that computes it. It is copied if that step cannot write there: if the
gradient is a view, is a source itself, or is that of another parameter as well.

Needs: kernels. Provides: the results `NAME:grad`, and `mutations` of pinned tensors of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.device import DeviceDescription
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, Step, StepKind, ValueId, writes
from mxrun.graph.update_rule import accumulated
from mxrun.operator.register import create
from mxrun.passes.select import REORDER, reorder_kernel


def in_order_of_backward(graph: Graph, gradients: Mapping[str, ValueId]) -> dict[str, ValueId]:
    """Return the gradients by parameter, in the order in which the graph's steps write them."""
    written = {value: at for at, step in enumerate(graph.steps) for value in step.writes}
    names = sorted(gradients, key=lambda name: written.get(gradients[name], -1))
    return {name: gradients[name] for name in names}


def pinned_gradients(graph: Graph, names: tuple[str, ...], device: DeviceDescription) -> Graph:
    """Return the graph with the gradients of parameters `names` in pinned tensors.

    Each gradient is the graph's result `NAME:grad` in the plain layout.
    """
    graph = _with_early_reorders(graph)
    gradients = {name: graph.results[accumulated(name)] for name in names}
    builder = GraphBuilder(graph)
    producer = graph.producer()
    taken: set[ValueId] = set()
    for name, gradient in in_order_of_backward(graph, gradients).items():
        spec = graph.spec(gradient)
        pinned = builder.source(accumulated(name), spec, MemoryClass.GRADIENTS)
        step = producer.get(gradient)
        if step is None or step.is_view or gradient in {*taken, *graph.mutations}:
            gradient = _copied(builder, name, gradient, device)
        taken.add(gradient)
        builder.mutations[gradient] = pinned
        builder.results[accumulated(name)] = gradient
    return builder.build()


def _copied(
    builder: GraphBuilder, name: str, gradient: ValueId, device: DeviceDescription
) -> ValueId:
    """Insert a copy of a gradient directly after the step that writes it; return the copy."""
    spec = builder.values[gradient].spec
    copy = builder.value(f"{accumulated(name)}_copy", spec, MemoryClass.GRADIENTS)
    step = Step(
        name=f"{accumulated(name)}:copy",
        kind=StepKind.REORDER,
        prop=create(REORDER, {}),
        inputs=(gradient,),
        outputs=(copy,),
        requests=writes((copy,)),
        kernel=reorder_kernel(spec, spec, device),
    )
    positions = (at for at, each in enumerate(builder.steps) if gradient in each.writes)
    builder.steps.insert(next(positions, -1) + 1, step)
    return copy


def _with_early_reorders(graph: Graph) -> Graph:
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
