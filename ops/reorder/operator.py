"""Reorder: conversion to another layout or dtype; inserted by the planner, never by users."""

from __future__ import annotations

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.params import Parameters
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes, same_shape
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.ops.copy_part import copy_part
from mxrun.ops.reorder.channels import layout_part


class ReorderParameters(Parameters):
    """Parameters of a reorder: none, the specs define it."""


@register("_reorder")
class ReorderProperty(OperatorProperty[ReorderParameters]):
    """output = data, element by element, in the layout and dtype of the output's spec.

    Numbers are rounded to nearest, ties to even.
    """

    type_string = "_reorder"
    parameter_type = ReorderParameters
    is_internal = True
    unchecked = "The NumPy body of a reorder knows plain layouts alone."

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the shapes of data and output."""
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def create_operator(self) -> Operator:
        """Create the body."""
        return Reorder()


class Reorder(Operator):
    """NumPy body, for plain layouts: conversion to another dtype."""

    def forward(self, call: ForwardCall) -> None:
        """Store data."""
        call.store(output=call.inputs.data)


@implement("_reorder", backend="jit")
class CompiledConversion(Implementation):
    """Conversion to another dtype or between the plain and the channels-last layout, for devices
    without oneDNN.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the conversion, in one pass."""
        (data,), (output,), device = request.inputs, request.outputs, request.device
        types = (output.dtype, data.dtype)
        if data.layout == output.layout and {*types} <= {BFLOAT16, FLOAT32}:
            part = copy_part(source(0), target(0), data.elements, device, stored=types)
        elif (found := layout_part(data, output, device)) is not None:
            part = found
        else:
            return None
        return native_kernel(self.name, [part], (data,), (output,), request.requests, device)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: reorders are inserted after differentiation."""
        return None
