"""Gradients of dense layers' biases from the activations that follow, in training.

A bias's gradient is the sum over the rows of a gradient that the activation's backward step writes,
so that this step can add them. The product reads the bias as a constant. The numbers stay the same.

Needs: a forward graph before its gradient. Provides: dense layers whose biases have no gradient
there, and activations from which they get it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, Step, StepKind, writes
from mxrun.operator.register import AnyProperty, create
from mxrun.passes.single_use import Readers, joint_name, may_fuse, with_pairs

# Name of this pass among the fusions.
BIAS_ACTIVATION = "bias and activation"
PRODUCT = "FullyConnected"
FUSED = "_bias_activation"
_BIAS = 2


def bias_activation(graph: Graph) -> Graph:
    """Return the graph with the biases' gradients from the layers' only readers."""
    names = {step.name for step in graph.steps}
    return with_pairs(graph, partial(_activation, graph, Readers(graph)), partial(_moved, names))


def _activation(graph: Graph, readers: Readers, step: Step) -> Step | None:
    """Return the activation that is the only reader of a dense layer with a bias, or None.

    All tensors have one dtype: the gradient is not rounded before its rows are added.
    """
    if step.prop is None or step.prop.type_string != PRODUCT or len(step.inputs) <= _BIAS:
        return None
    following = readers.only_one(step.outputs[0])
    if following is None or following.prop is None or function_of(following.prop) is None:
        return None
    dtypes = {graph.spec(value).dtype for value in (*step.reads, *step.writes, *following.writes)}
    return following if len(dtypes) == 1 and may_fuse(step) and may_fuse(following) else None


def function_of(prop: AnyProperty) -> str | None:
    """Return act_type of the fused operator for an activation, or None for another operator."""
    if prop.type_string == "gelu":
        return "gelu" if prop.parameters.approximate == "none" else "gelu_tanh"
    if prop.type_string == "LeakyReLU":
        return "gelu" if prop.parameters.act_type == "gelu" else None
    return "silu" if prop.type_string == "silu" else None


def _moved(
    names: set[str], builder: GraphBuilder, product: Step, activation: Step
) -> Iterator[Step]:
    bias = product.inputs[_BIAS]
    assert bias is not None
    name = joint_name([f"{product.name}_bias", activation.name], names)
    constant = builder.value(f"{name}_constant", builder.values[bias].spec, MemoryClass.ACTIVATIONS)
    yield Step(
        name=f"{name}:constant",
        kind=StepKind.FORWARD,
        prop=create("BlockGrad", {}),
        inputs=(bias,),
        outputs=(constant,),
        requests=writes((constant,)),
        place=product.place,
    )
    yield replace(product, inputs=(*product.inputs[:_BIAS], constant))
    assert activation.prop is not None
    yield replace(
        activation,
        name=name,
        prop=create(FUSED, {"act_type": function_of(activation.prop)}),
        inputs=(product.outputs[0], bias),
        readings=((activation.order, 0), (product.order, _BIAS)),
    )
