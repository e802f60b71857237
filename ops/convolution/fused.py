"""Fusion of Convolution with a following sum and limits, for inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from mxrun.operator.fusion import fusion
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import GradientKind, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, create, register
from mxrun.operator.shape import unify
from mxrun.ops.convolution.base import WindowProduct, WindowProductParameters
from mxrun.ops.convolution.convolution import ConvolutionProperty

T = TypeVar("T")


class ConvolutionFusedParameters(WindowProductParameters):
    """Parameters of Convolution, the optional residual and the limits."""

    residual: bool = Field(default=False, description="Add the argument residual.")
    low: float = Field(default=-math.inf, description="Smallest output.")
    high: float = Field(default=math.inf, description="Largest output.")


@register("_convolution_fused")
class ConvolutionFusedProperty(ConvolutionProperty):
    """output = Convolution(data) + residual, limited to [low, high].

    residual, if requested, has the output's shape. For inference only: no gradient. NaN may become
    a limit.
    """

    type_string = "_convolution_fused"
    parameter_type = ConvolutionFusedParameters
    parameters: ConvolutionFusedParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """Convolution's arguments and residual."""
        return (*super().list_arguments(), *(("residual",) if self.parameters.residual else ()))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer as Convolution; residual and output have one shape."""
        if not self.parameters.residual:
            return super().infer_shape(inputs, outputs)
        *arguments, residual = inputs
        found = super().infer_shape(arguments, [unify("output", outputs[0], residual, "residual")])
        return PartialInference([*found.inputs, found.outputs[0]], found.outputs, [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """No input has a gradient."""
        return (GradientKind.NONE,) * len(self.list_arguments())

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair residual with the output."""
        return [(in_data[-1], out_data[0])] if self.parameters.residual else []

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return ConvolutionFused(self.parameters)


class ConvolutionFused(WindowProduct):
    """NumPy body: Convolution's, then the sum and the limits."""

    def __init__(self, parameters: ConvolutionFusedParameters) -> None:
        super().__init__(parameters, transposed=False)
        self.low, self.high = parameters.low, parameters.high

    def forward(self, call: ForwardCall) -> None:
        """output = weight x columns(data) + bias + residual, limited to [low, high]."""
        result = self.output(call)
        if "residual" in call.inputs:
            result += call.inputs.residual
        kind: Any = result.dtype.type
        call.store(output=np.clip(result, kind(self.low), kind(self.high)))


def _fused(convolution: AnyProperty, **further: object) -> AnyProperty:
    return create("_convolution_fused", {**convolution.parameters.model_dump(), **further})


def _limits(following: AnyProperty) -> dict[str, object] | None:
    """Return the limits of an Activation or clip, or None for another function."""
    p = following.parameters
    if following.type_string == "clip":
        return {"low": p.a_min, "high": p.a_max} if p.a_min <= p.a_max else None
    return {"low": 0.0} if p.act_type == "relu" else None


@fusion("convolution and sum", "Convolution", "elemwise_add", inference=True)
def summed(convolution: AnyProperty, addition: AnyProperty) -> AnyProperty | None:
    """Return Convolution + residual."""
    return _fused(convolution, residual=True)


@fusion("convolution and rectifier", "Convolution", "Activation", inference=True)
@fusion("convolution and clip", "Convolution", "clip", inference=True)
def limited(convolution: AnyProperty, following: AnyProperty) -> AnyProperty | None:
    """Return Convolution within limits."""
    limits = _limits(following)
    return None if limits is None else _fused(convolution, **limits)


@fusion(
    "convolution, sum and rectifier", "Convolution", "elemwise_add", "Activation", inference=True
)
def summed_and_limited(
    convolution: AnyProperty, addition: AnyProperty, following: AnyProperty
) -> AnyProperty | None:
    """Return Convolution + residual within limits."""
    limits = _limits(following)
    return None if limits is None else _fused(convolution, residual=True, **limits)
