"""Updates of auxiliary states as explicit steps, once per training step.

An operator that keeps statistics (batch normalisation) only outputs those of the current batch. The
moving average is a step of its own, so that running a forward step again changes no state.

Needs: a forward graph in training. Provides: update steps and `mutations` of auxiliary states.
"""

from __future__ import annotations

from mxrun.graph.graph import Graph, GraphBuilder, Step
from mxrun.operator.register import create
from mxrun.passes.updates import append_update

MOVING_AVERAGE = "_moving_average"


def batch_norm_state(graph: Graph) -> Graph:
    """Append one moving-average step per auxiliary state that an operator declares to change."""
    builder = GraphBuilder(graph)
    for step in graph.steps:
        if step.forward is None and step.prop is not None:
            _append(builder, step)
    return builder.build()


def _append(builder: GraphBuilder, step: Step) -> None:
    assert step.prop is not None
    arguments = len(step.prop.list_arguments())
    states = dict(zip(step.prop.list_auxiliary_states(), step.inputs[arguments:], strict=False))
    outputs = dict(zip(step.prop.list_outputs(), step.outputs, strict=True))
    for update in step.prop.list_state_updates():
        state, value = states[update.state], outputs[update.output]
        assert state is not None
        assert value is not None
        prop = create(MOVING_AVERAGE, {"momentum": update.momentum})
        append_update(builder, f"{builder.values[state].name}:update", prop, (state, value))
