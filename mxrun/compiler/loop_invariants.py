"""Loop-invariant code motion: what does not change from one iteration to the next is computed once.

Steps of a loop's body that read only tensors which all iterations share, such as packed copies of
weights, move to the enclosing graph, before the loop. Out of a loop that runs once only steps move
that were within another loop in it, so that they end in the outermost graph.

Needs: bodies with kernels. Provides: steps with kernels outside of loops, marked as `hoisted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mxrun.graph.graph import (
    Graph,
    GraphBuilder,
    GraphLoop,
    MemoryClass,
    Slice,
    Step,
    StepKind,
    ValueId,
)
from mxrun.operator.register import create
from mxrun.passes.dead_code import without_unread_views


def hoist_invariants(graph: Graph) -> Graph:
    """Return the graph with the invariant steps of its loops before these."""
    memory, builder = graph.roots(), GraphBuilder(graph)
    builder.steps, taken = [], {step.name for step in graph.steps}
    for step in graph.steps:
        if step.loop is None:
            builder.step(step)
        else:
            builder.step(_hoisted(builder, step, step.loop, memory, taken))
    return builder.build()


def _hoisted(
    builder: GraphBuilder,
    step: Step,
    loop: GraphLoop,
    memory: Sequence[ValueId],
    taken: set[str],
) -> Step:
    """Append the invariant steps of a loop; return the loop over the other steps.

    taken: names of the steps of the enclosing graph.
    """
    outside = _shared_tensors(step, loop, memory)
    moved = _invariant_steps(loop, outside)
    remaining = _remaining(loop.body, {each.name for each in moved if not each.is_view})
    read = {value for each in remaining for value in each.reads} | {*loop.body.results.values()}
    copies = dict(outside)
    for each in moved:
        for value in each.writes:
            own = loop.body.values[value]
            copies[value] = builder.value(own.name, own.spec, own.memory_class)
        is_unique = each.hoisted and each.name not in taken
        name = each.name if is_unique else f"{each.name}:{step.name}"
        taken.add(name)
        builder.step(_outside(each, name, copies))
    stored = [value for each in moved if not each.is_view for value in each.writes if value in read]
    return _with_inputs(step, loop, remaining, {value: copies[value] for value in stored})


def _shared_tensors(
    step: Step, loop: GraphLoop, memory: Sequence[ValueId]
) -> dict[ValueId, ValueId]:
    """Return the sources of a body that are entire tensors around it, which it only reads."""
    written = {memory[value] for value in step.writes}
    overwritten = {*loop.body.mutations.values()}
    found = {}
    for name, place in loop.reads.items():
        source, tensor = loop.body.sources[name], step.reads[place.tensor]
        is_entire = place.stride == 0 and loop.body.spec(source) == loop.inputs[place.tensor]
        if is_entire and memory[tensor] not in written and source not in overwritten:
            found[source] = tensor
    return found


def _invariant_steps(loop: GraphLoop, sources: Mapping[ValueId, ValueId]) -> list[Step]:
    """Return the steps that can run before the loop, with the views that they read."""
    body, roots, known = loop.body, loop.body.roots(), {*sources}
    fixed = {roots[value] for value in (*body.results.values(), *body.mutations)}
    found = []
    for step in body.steps:
        moves = step.kind in (StepKind.FORWARD, StepKind.REORDER) and step.loop is None
        moves = moves and (loop.count > 1 or step.hoisted or step.is_view)
        is_invariant = bool(step.reads) and known.issuperset(step.reads)
        if moves and is_invariant and fixed.isdisjoint(roots[value] for value in step.writes):
            known.update(step.writes)
            found.append(step)
    return without_unread_views(found, ())


def _remaining(body: Graph, moved: set[str]) -> list[Step]:
    """Return the steps of a body without those that move, and without views for these alone."""
    steps = [step for step in body.steps if step.name not in moved]
    return without_unread_views(steps, [*body.results.values()]) if moved else steps


def _outside(step: Step, name: str, values: Mapping[ValueId, ValueId]) -> Step:
    """Return a step of a body as one of the enclosing graph."""
    return replace(
        step,
        name=name,
        inputs=tuple(None if value is None else values[value] for value in step.inputs),
        outputs=tuple(None if value is None else values[value] for value in step.outputs),
        repeats=None,
        hoisted=True,
    )


def _with_inputs(
    step: Step, loop: GraphLoop, remaining: Sequence[Step], stored: Mapping[ValueId, ValueId]
) -> Step:
    """Return a loop over the remaining steps, which reads what the moved ones have stored."""
    if len(remaining) == len(loop.body.steps):
        return step
    body, values = loop.body, list(loop.body.values)
    names = {f"hoisted:{value}": value for value in stored}
    read = {value for each in remaining for value in each.reads}
    read |= {*body.results.values(), *body.mutations.values()}
    sources = {name: value for name, value in body.sources.items() if value in read}
    for value in stored:
        values[value] = replace(values[value], memory_class=MemoryClass.IO)
    reads = {name: place for name, place in loop.reads.items() if name in sources}
    reads |= {name: Slice(len(loop.inputs) + number) for number, name in enumerate(names)}
    inputs = (*loop.inputs, *map(body.spec, stored))
    changed = replace(
        body, values=tuple(values), steps=tuple(remaining), sources={**sources, **names}
    )
    parameters = {"num_inputs": len(inputs), "num_outputs": len(loop.outputs)}
    return replace(
        step,
        prop=create("_loop", parameters),
        inputs=(*step.inputs, *stored.values()),
        loop=replace(loop, body=changed, reads=reads, inputs=inputs),
    )
