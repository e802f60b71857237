"""Reorder: conversion to another layout or dtype; inserted by the planner, never by users."""

from __future__ import annotations

from mxrun.backend.onednn import library, operations
from mxrun.backend.onednn.primitive import Argument, Unsupported
from mxrun.backend.team import team_for_elements
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.params import Parameters
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import PrimitivePart, native_kernel, source, target
from mxrun.operator.operator import Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes, same_shape
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.ops.copy_part import copy_part
from mxrun.ops.reorder.packing import packing_part


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
    unchecked = "A reorder has no NumPy body, which knows plain layouts alone, to check it against."

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the shapes of data and output."""
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def create_operator(self) -> Operator:
        """Raise TypeError: NumPy bodies support plain layouts only."""
        raise TypeError("a reorder has no NumPy body")


@implement("_reorder", backend="packing")
class CompiledPacking(Implementation):
    """Reorders between a plain tensor and a packed layout for matrix products."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare a reorder in tiles; returns None for other layouts."""
        (data,), (output,) = request.inputs, request.outputs
        part = packing_part((source(0), data), (target(0), output), request.threads)
        if part is None:
            return None
        return native_kernel(
            f"jit:{self.name}", [part], (data,), (output,), request.requests, request.threads
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: reorders are inserted after differentiation."""
        return None


@implement("_reorder", backend="onednn")
class OnednnReorder(Implementation):
    """oneDNN's reorder primitive."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the reorder; returns None if oneDNN does not support it."""
        if library.load() is None:
            return None
        try:
            team = team_for_elements(request.inputs[0].elements, request.threads)
            primitive = operations.reorder(request.inputs[0], request.outputs[0], team)
        except Unsupported:
            return None
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, {Argument.SOURCE: source(0), Argument.OUTPUT: target(0)})],
            request.inputs,
            request.outputs,
            request.requests,
            request.threads,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: reorders are inserted after differentiation."""
        return None


@implement("_reorder", backend="jit")
class CompiledConversion(Implementation):
    """Conversion to another dtype in the same layout, for machines without oneDNN."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the conversion, in one pass."""
        (data,), (output,) = request.inputs, request.outputs
        types = (output.dtype, data.dtype)
        if data.layout != output.layout or not {*types} <= {BFLOAT16, FLOAT32}:
            return None
        count, threads = data.elements, request.threads
        part = copy_part(source(0), target(0), count, threads, stored=types)
        return native_kernel(self.name, [part], (data,), (output,), request.requests, threads)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: reorders are inserted after differentiation."""
        return None
