"""Folding of batch normalisations with fixed statistics into the products before them.

y = scale * (W x + b - mean) + beta equals (scale W) x + ((b - mean) scale + beta): another weight
and bias, which depend on parameters alone, so that they are computed once.

Needs: an inference graph whose parameters do not change. Provides: products with folded parameters
in place of the normalisations, after the steps that fold them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from mxrun.base.tensor import TensorSpec
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, Step, StepKind, writes
from mxrun.operator.register import create
from mxrun.passes.single_use import Readers, joint_name, may_fuse, with_pairs

NORMALIZATION = "BatchNorm"
FOLD = "_batch_norm_fold"
# Name of this pass among the fusions.
FOLDING = "batch norm folded into a product"
# Operators whose output channels each depend on one slice of the weight along axis 0 and one
# element of the bias.
PRODUCTS = ("Convolution", "FullyConnected")


def fold_batch_norm(graph: Graph) -> Graph:
    """Return a graph with the same outputs up to rounding."""
    following = partial(_normalization, graph, Readers(graph))
    return with_pairs(graph, following, partial(_folded, {step.name for step in graph.steps}))


def _normalization(graph: Graph, readers: Readers, step: Step) -> Step | None:
    """Return the normalisation along a product's channels that is its only reader, or None."""
    if step.prop is None or step.prop.type_string not in PRODUCTS or not may_fuse(step):
        return None
    following = readers.only_one(step.outputs[0])
    if following is None or following.prop is None or not may_fuse(following):
        return None
    # Weight and bias must exist before the first step.
    given = set(graph.sources.values())
    if following.prop.type_string != NORMALIZATION or not given.issuperset(step.reads[1:]):
        return None
    # A folded product runs in one dtype.
    product, normalized = graph.spec(step.writes[0]), graph.spec(following.writes[0])
    if product.dtype != normalized.dtype:
        return None
    parameters, rank = following.prop.parameters, len(graph.spec(following.reads[0]).shape)
    # A dense layer that preserves further axes has its channels last.
    fits = parameters.axis % rank == 1 and not parameters.output_mean_var
    return following if fits and (rank == 2 or step.prop.type_string == "Convolution") else None


def _folded(
    names: set[str], builder: GraphBuilder, product: Step, normalization: Step
) -> Iterator[Step]:
    assert product.prop is not None
    assert normalization.prop is not None
    data, *own = product.inputs
    weight = own[0]
    assert weight is not None
    spec = builder.values[weight].spec
    given = normalization.prop.parameters
    options = {"eps": given.eps, "fix_gamma": given.fix_gamma, "no_bias": len(own) == 1}
    name = joint_name([product.name, normalization.name], names)
    outputs = tuple(
        builder.value(f"{name}_{role}", part, MemoryClass.WORKSPACE)
        for role, part in (("weight", spec), ("bias", TensorSpec(spec.shape[:1], spec.dtype)))
    )
    yield Step(
        name=f"{name}:fold",
        kind=StepKind.FORWARD,
        prop=create(FOLD, options),
        inputs=(*own, *normalization.inputs[1:]),
        outputs=outputs,
        requests=writes(outputs),
        place=normalization.place,
    )
    parameters = {**product.prop.parameters.model_dump(), "no_bias": False}
    yield replace(
        product,
        name=name,
        prop=create(product.prop.type_string, parameters),
        inputs=(data, *outputs),
        outputs=normalization.outputs[:1],
    )
