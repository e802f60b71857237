"""Checks of one operator property: contradicting shapes, and what backward reads."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mxrun.operator.property import PartialShapes
from mxrun.operator.register import create
from mxrun.operator.shape import ShapeContradiction


def contradiction(
    operator: str, parameters: Mapping[str, object], inputs: PartialShapes
) -> ShapeContradiction:
    """Return the error of inferring shapes from inputs that contradict each other."""
    prop = create(operator, parameters)
    with pytest.raises(ShapeContradiction) as caught:
        prop.infer_shape(inputs, [None] * len(prop.list_outputs()))
    return caught.value


def backward_reads(operator: str, parameters: Mapping[str, object]) -> set[str]:
    """Return what backward reads: output gradients g and h, inputs a, b, c, outputs y and z."""
    prop = create(operator, parameters)
    inputs, outputs = len(prop.list_arguments()), len(prop.list_outputs())
    reads = prop.declare_backward_dependency(["g", "h"][:outputs], "abc"[:inputs], "yz"[:outputs])
    return set(reads)
