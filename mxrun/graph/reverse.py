"""Reverse traversal: a second, simple backward for checking the explicit gradient graph.

It follows DyNet (Neubig et al. 2017, arXiv:1701.03980): every forward step with a gradient is
differentiated in exactly the reverse order, with the gradient of every input; unrequested gradients
are dropped at the end. It shares with the explicit graph only the rule that contributions are
summed in the order of the readers, so equal kernels give equal bits.

Needs: a forward graph. Provides: the same values as `gradient`, at a higher cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mxrun.graph.gradient import (
    Contributions,
    Differentiated,
    backward_inputs,
    backward_step,
    require_trainable,
)
from mxrun.graph.graph import Graph, GraphBuilder, ValueId
from mxrun.graph.trainability import has_backward
from mxrun.operator.property import GradientKind


def reverse(
    graph: Graph, requested: Collection[str], heads: Mapping[ValueId, ValueId] | None = None
) -> Differentiated:
    """Append a backward step for every forward step.

    heads: gradients from outside, as of `gradient`. Raises UserError as `gradient` does.
    """
    heads = heads or {}
    require_trainable(graph, requested, heads)
    builder = GraphBuilder(graph)
    contributions = Contributions(builder, graph)
    for value, given in heads.items():
        contributions.enter(value, given)
    for step in reversed(graph.steps):
        assert step.prop is not None
        out_grad = tuple(
            None if value is None else contributions.total(value) for value in step.outputs
        )
        if not has_backward(step, out_grad):
            continue
        kinds = step.prop.list_gradients()
        in_grad = tuple(
            contributions.new(value, step, index)
            if value is not None and kinds[index] is GradientKind.COMPUTES
            else None
            for index, value in enumerate(step.inputs[: len(kinds)])
        )
        if all(value is None for value in in_grad):
            continue
        builder.step(backward_step(step, backward_inputs(step, out_grad), in_grad))
    gradients = contributions.of(requested)
    return Differentiated(builder.build(), gradients)
