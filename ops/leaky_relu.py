"""LeakyReLU: rectifiers that let something through below zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.operator.kernel import OpReqType
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import (
    Inferred,
    OperatorProperty,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
    same_shape,
)
from mxrun.operator.register import register
from mxrun.operator.shape import unify
from mxrun.operator.tensor import Tensor

T = TypeVar("T")
Array = npt.NDArray[Any]

# Klambauer et al., "Self-Normalizing Neural Networks", 2017: with these, activations keep mean 0
# and variance 1.
SELU_SLOPE = 1.6732632423543772
SELU_SCALE = 1.0507009873554805
# The upper bits of a random word that make a number in [0, 1), exact in float32.
RANDOM_BITS = 24


class LeakyReLUParameters(Parameters):
    """Parameters of LeakyReLU (MXNet's names and defaults)."""

    act_type: Literal["rrelu", "leaky", "prelu", "elu", "selu", "gelu"] = Field(
        default="leaky", description="The function applied to every element."
    )
    slope: Float32 = Field(
        default=0.25, description="Slope below zero of leaky, and of elu at zero."
    )
    lower_bound: Float32 = Field(
        default=0.125, description="Least slope that rrelu draws in training."
    )
    upper_bound: Float32 = Field(
        default=0.334, description="Greatest slope that rrelu draws in training."
    )

    @property
    def mean_slope(self) -> float:
        """The slope of rrelu in evaluation."""
        return (self.lower_bound + self.upper_bound) / 2

    @property
    def output_tells(self) -> bool:
        """Whether the output is positive exactly where data is."""
        return self.act_type == "selu" or (self.act_type in ("leaky", "elu") and self.slope >= 0)


@register("LeakyReLU")
class LeakyReLUProperty(OperatorProperty[LeakyReLUParameters]):
    """output = data where data > 0; elsewhere leaky: slope * data, elu: slope (exp(data) - 1),
    prelu: gamma * data, rrelu: mask * data, selu as elu with a slope of 1.673..., all of it times
    1.0507... gelu: data (1 + erf(data / sqrt(2))) / 2 everywhere.

    data and output of any shape; gamma, of prelu alone, has one number for each channel (axis 1;
    of a vector there is one), or one for all. mask, of rrelu alone and hidden: 1 where data > 0,
    else lower_bound + u (upper_bound - lower_bound), where u is the upper 24 bits of the element's
    word of the random stream, times 2^-24; in evaluation the mean of the bounds.

    Backward reads the output's gradient and what the derivative follows from: mask of rrelu; the
    output of selu, leaky and elu, and data as well where a slope below 0 makes outputs positive;
    data of gelu; data and gamma of prelu, whose gradient is the sum of g data where data <= 0.
    (MXNet 1.9.1's gradient of selu is not the derivative; ours is.)
    """

    type_string = "LeakyReLU"
    parameter_type = LeakyReLUParameters

    def list_arguments(self) -> tuple[str, ...]:
        """data and, for prelu, gamma."""
        return ("data", "gamma") if self.parameters.act_type == "prelu" else ("data",)

    def list_outputs(self) -> tuple[str, ...]:
        """The output and, for rrelu, the hidden mask."""
        return ("output", "mask") if self.parameters.act_type == "rrelu" else ("output",)

    @property
    def num_visible_outputs(self) -> int:
        """The output alone."""
        return 1

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """data, output and mask have one shape; gamma has its channels, or 1."""
        names = ("data", *self.list_outputs())
        data, *written = same_shape(names, [inputs[0], *outputs], "elementwise")
        if self.parameters.act_type != "prelu":
            return Inferred([data], written, [])
        gamma = inputs[1]
        if gamma != (1,):
            channels = None if data is None else data[1] if len(data) > 1 else 1
            gamma = unify("gamma", gamma, (channels,), "data's channels, or one for all")
            if data is not None and len(data) > 1:
                data = (data[0], gamma[0], *data[2:])
                written = [data]
        return Inferred([data, gamma], written, [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """The output's gradient and what the class says."""
        p = self.parameters
        if p.act_type == "rrelu":
            return [out_grad[0], out_data[1]]
        if p.output_tells:
            return [out_grad[0], out_data[0]]
        if p.act_type == "elu":
            return [out_grad[0], in_data[0], out_data[0]]
        return [out_grad[0], *in_data]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The output over data."""
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """data's gradient over the output's; gamma's needs both, so prelu has no hint."""
        return [] if self.parameters.act_type == "prelu" else [(out_grad[0], in_grad[0])]

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Random numbers for rrelu."""
        random = ResourceRequest(ResourceKind.RANDOM)
        return [random] if self.parameters.act_type == "rrelu" else []

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """A comparison and a product of every element."""
        return 2 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """NumPy expressions."""
        return LeakyReLU(self.parameters)


class LeakyReLU(Operator):
    """The formulas of the property."""

    def __init__(self, parameters: LeakyReLUParameters) -> None:
        self.parameters = parameters

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """The function of act_type."""
        p, data = self.parameters, in_data[0].array
        if p.act_type == "gelu":
            output = data * _normal_distribution(data)
        elif p.act_type in ("elu", "selu"):
            slope, scale = (p.slope, 1) if p.act_type == "elu" else (SELU_SLOPE, SELU_SCALE)
            output = scale * np.where(data > 0, data, slope * np.expm1(np.minimum(data, 0)))
        else:
            slopes: Array = np.asarray(p.slope, data.dtype)
            if p.act_type == "prelu":
                slopes = _along(data, in_data[1].array)
            if p.act_type == "rrelu":
                slopes = self._drawn(context, data)
                assign(out_data[1], req[1], np.where(data > 0, 1, slopes))
            output = np.where(data > 0, data, slopes * data)
        assign(out_data[0], req[0], output)

    def _drawn(self, context: OpContext, data: Array) -> Array:
        p = self.parameters
        if not context.is_train:
            return np.asarray(p.mean_slope, data.dtype)
        upper = context.random(0).bits(data.size) >> (32 - RANDOM_BITS)
        unit = upper.astype(data.dtype) * data.dtype.type(2.0**-RANDOM_BITS)
        width = data.dtype.type(p.upper_bound - p.lower_bound)
        slopes: Array = data.dtype.type(p.lower_bound) + unit * width
        return slopes.reshape(data.shape)

    def backward(
        self,
        context: OpContext,
        out_grad: Sequence[Tensor | None],
        in_data: Sequence[Tensor | None],
        out_data: Sequence[Tensor | None],
        req: Sequence[OpReqType],
        in_grad: Sequence[Tensor | None],
        aux_states: Sequence[Tensor],
    ) -> None:
        """grad * the derivative of act_type's function."""
        p, gradient = self.parameters, need(out_grad[0])
        if p.act_type == "rrelu":
            assign(in_grad[0], req[0], gradient * need(out_data[1]))
            return
        if p.act_type == "gelu":
            data = need(in_data[0])
            density = np.exp(-np.square(data) / 2) / math.sqrt(2 * math.pi)
            assign(in_grad[0], req[0], gradient * (_normal_distribution(data) + data * density))
            return
        sign = need(out_data[0] if p.output_tells else in_data[0])
        above, below = 1.0, np.asarray(p.slope, gradient.dtype)
        if p.act_type == "elu":
            below = need(out_data[0]) + below
        if p.act_type == "selu":
            above, below = SELU_SCALE, sign + SELU_SCALE * SELU_SLOPE
        if p.act_type == "prelu":
            gamma = need(in_data[1])
            below = _along(sign, gamma)
            lost = gradient * np.where(sign > 0, 0, sign)
            others = tuple(a for a in range(sign.ndim) if a != 1 or gamma.size == 1)
            assign(in_grad[1], req[1], lost.sum(axis=others))
        slopes = np.where(sign > 0, np.asarray(above, gradient.dtype), below)
        assign(in_grad[0], req[0], gradient * slopes)


def _normal_distribution(data: Array) -> Array:
    """(1 + erf(x / sqrt(2))) / 2."""
    error_function = np.vectorize(math.erf, otypes=[data.dtype])
    value: Array = (1 + error_function(data / math.sqrt(2))) / 2
    return value


def _along(data: Array, gamma: Array) -> Array:
    """gamma in a form that meets data's channels."""
    return gamma if data.ndim == 1 else gamma.reshape(-1, *(1,) * (data.ndim - 2))
