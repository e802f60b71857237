"""Updates of auxiliary states as explicit steps, once per training step.

An operator that keeps statistics (batch normalisation) only outputs those of the current batch. The
moving average is a step of its own, so that running a forward step again changes no state.

Needs: a forward graph in training. Provides: update steps and `mutations` of auxiliary states.
"""

from __future__ import annotations

from mxrun.graph.graph import Graph, GraphBuilder, Step
from mxrun.operator.register import AnyProperty, create
from mxrun.passes.updates import append_update, with_updates

MOVING_AVERAGE = "_moving_average"


def batch_norm_state(graph: Graph) -> Graph:
    """Append one moving-average step per auxiliary state that an operator declares to change."""
    return with_updates(graph, _append)


def _append(builder: GraphBuilder, step: Step, prop: AnyProperty) -> None:
    arguments = len(prop.list_arguments())
    states = dict(zip(prop.list_auxiliary_states(), step.inputs[arguments:], strict=False))
    outputs = dict(zip(prop.list_outputs(), step.outputs, strict=True))
    for update in prop.list_state_updates():
        state, value = states[update.state], outputs[update.output]
        assert state is not None
        assert value is not None
        average = create(MOVING_AVERAGE, {"momentum": update.momentum})
        append_update(builder, f"{builder.values[state].name}:update", average, (state, value))
