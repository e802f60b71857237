"""Carried states: steps at the end of a phase that write what its next run reads.

An operator only reads the state that the previous run of the phase left. What the state becomes is
written by a step of its own, after everything that reads the old state.

Needs: a graph with the gradients, if there are any. Provides: update steps and `mutations` of
carried states.
"""

from __future__ import annotations

from mxrun.graph.graph import Graph, GraphBuilder, Step
from mxrun.operator.register import AnyProperty, create
from mxrun.passes.updates import append_update, with_updates


def carried_states(graph: Graph) -> Graph:
    """Append one step per state that an operator declares to carry a value to the next run."""
    return with_updates(graph, _append)


def _append(builder: GraphBuilder, step: Step, prop: AnyProperty) -> None:
    written = set(builder.mutations.values())
    names = (*prop.list_arguments(), *prop.list_auxiliary_states())
    tensors = dict(zip(names, step.inputs, strict=False))
    values = tensors | dict(zip(prop.list_outputs(), step.outputs, strict=True))
    for carried in prop.list_carried_states():
        state, value = tensors[carried.state], values[carried.value]
        assert state is not None
        assert value is not None
        # Several outputs of one layer may name its states.
        if state in written:
            continue
        name = f"{builder.values[state].name}:update"
        append_update(builder, name, create("_copy", {}), [value], [state])
