"""Carried states: steps at the end of a phase that write what its next run reads.

An operator only reads the state that the previous run of the phase left. What the state becomes is
written by a step of its own, after everything that reads the old state.

Needs: a graph with the gradients, if there are any. Provides: update steps and `mutations` of
carried states.
"""

from __future__ import annotations

from mxrun.graph.graph import Graph, GraphBuilder, Step
from mxrun.operator.register import create
from mxrun.passes.updates import append_update


def carried_states(graph: Graph) -> Graph:
    """Append one step per state that an operator declares to carry a value to the next run."""
    builder = GraphBuilder(graph)
    for step in graph.steps:
        if step.forward is None and step.prop is not None:
            _append(builder, step)
    return builder.build()


def _append(builder: GraphBuilder, step: Step) -> None:
    assert step.prop is not None
    written = set(builder.mutations.values())
    names = (*step.prop.list_arguments(), *step.prop.list_auxiliary_states())
    tensors = dict(zip(names, step.inputs, strict=False))
    values = tensors | dict(zip(step.prop.list_outputs(), step.outputs, strict=True))
    for carried in step.prop.list_carried_states():
        state, value = tensors[carried.state], values[carried.value]
        assert state is not None
        assert value is not None
        # Several outputs of one layer may name its states.
        if state in written:
            continue
        name = f"{builder.values[state].name}:update"
        append_update(builder, name, create("_carry", {}), (state, value))
