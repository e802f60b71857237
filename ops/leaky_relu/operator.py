"""LeakyReLU: rectifiers with non-zero output below zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    PartialInference,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
    same_shape,
)
from mxrun.operator.register import register
from mxrun.operator.scalar import erf, exp, expm1, gelu, where
from mxrun.operator.shape import unify
from mxrun.operator.simple import (
    SimpleEntry,
    SimpleProperty,
    reads_inputs,
    reads_output,
    simple_entry,
)
from mxrun.ops.sums import sum_over

T = TypeVar("T")
Array = npt.NDArray[Any]
# Scalar functions run on numbers, arrays and symbolic values.
Scalar = Any

# Klambauer et al., "Self-Normalizing Neural Networks", 2017: with these constants, activations keep
# mean 0 and variance 1.
SELU_SLOPE = 1.6732632423543772
SELU_SCALE = 1.0507009873554805
# Upper bits of a random word that give a number in [0, 1), exact in float32.
RANDOM_BITS = 24


class LeakyReLUParameters(Parameters):
    """Parameters of LeakyReLU (MXNet's names and defaults)."""

    act_type: Literal["rrelu", "leaky", "prelu", "elu", "selu", "gelu"] = Field(
        default="leaky", description="Function applied to every element."
    )
    slope: Float32 = Field(
        default=0.25, description="Slope of leaky below zero, and of elu just below zero."
    )
    lower_bound: Float32 = Field(
        default=0.125, description="Lower bound on rrelu's random slopes in training."
    )
    upper_bound: Float32 = Field(
        default=0.334, description="Upper bound on rrelu's random slopes in training."
    )

    @property
    def mean_slope(self) -> float:
        """Slope of rrelu in evaluation."""
        return (self.lower_bound + self.upper_bound) / 2


def leaky(x: Scalar, slope: Scalar) -> Scalar:
    """Return x where x > 0, else slope * x."""
    return where(x > 0, x, slope * x)


def leaky_gradient(g: Scalar, sign: Scalar, slope: Scalar) -> Scalar:
    """Return g where sign > 0, else slope * g; `sign` is positive where data is."""
    return g * where(sign > 0, 1.0, slope)


def elu(x: Scalar, slope: Scalar) -> Scalar:
    """Return x where x > 0, else slope * (e^x - 1)."""
    return where(x > 0, x, slope * expm1(x))


def selu(x: Scalar) -> Scalar:
    """Return scale * elu(x) with fixed scale and slope."""
    return SELU_SCALE * elu(x, SELU_SLOPE)


def selu_gradient(g: Scalar, y: Scalar) -> Scalar:
    """Return g * scale where y > 0, else g * scale * slope * e^x = g * (y + scale * slope)."""
    return g * where(y > 0, SELU_SCALE, y + SELU_SCALE * SELU_SLOPE)


def gelu_gradient(g: Scalar, x: Scalar) -> Scalar:
    """Return g * (Phi(x) + x * phi(x)), with the normal distribution Phi and its density phi."""
    density = math.sqrt(0.5 / math.pi) * exp(-0.5 * x * x)
    return g * (0.5 + 0.5 * erf(math.sqrt(0.5) * x) + x * density)


_ENTRIES: dict[str, SimpleEntry] = {
    "leaky": simple_entry(leaky, LeakyReLUParameters, gradient=reads_output(leaky_gradient)),
    "elu": simple_entry(
        elu,
        LeakyReLUParameters,
        gradient=reads_output(lambda g, y, slope: g * where(y > 0, 1.0, y + slope)),
    ),
    "selu": simple_entry(selu, gradient=reads_output(selu_gradient)),
    "gelu": simple_entry(lambda x: gelu(x), gradient=reads_inputs(gelu_gradient)),
}
# With a slope below 0 the output is positive on both sides, so the gradients read data.
_ENTRIES_OF_DATA: dict[str, SimpleEntry] = {
    "leaky": simple_entry(leaky, LeakyReLUParameters, gradient=reads_inputs(leaky_gradient)),
    "elu": simple_entry(
        elu,
        LeakyReLUParameters,
        gradient=reads_inputs(lambda g, x, slope: g * where(x > 0, 1.0, slope * exp(x))),
    ),
}


@register(
    "LeakyReLU",
    foreign={
        f"LeakyReLU: {{act_type: {each}}}": each for each in ("prelu", "elu", "selu", "rrelu")
    },
)
class LeakyReLUProperty(SimpleProperty[LeakyReLUParameters]):
    """output = data where data > 0, elsewhere a function of data given by act_type. Exceptions:
    selu multiplies all outputs by 1.0507..., and gelu uses its function everywhere.

    - leaky: slope * data
    - elu: slope * (exp(data) - 1)
    - selu: 1.673... * (exp(data) - 1), times 1.0507...
    - prelu: gamma * data
    - rrelu: mask * data
    - gelu: data * (1 + erf(data / sqrt(2))) / 2

    data and output of any shape. gamma, for prelu only, has one number per channel (axis 1; a
    vector has one channel), or one for all. mask, for rrelu only and hidden, is 1 where data > 0,
    else lower_bound + u * (upper_bound - lower_bound), where u is the upper 24 bits of the
    element's word of the random stream, times 2^-24; in evaluation it is the mean of the bounds
    there.

    Backward reads the output's gradient and: mask for rrelu; output for selu, leaky and elu, but
    data if a slope below 0 makes outputs positive; data for gelu; data and gamma for prelu. gamma's
    gradient is the sum of g * data where data <= 0, with the output's gradient g. (MXNet 1.9.1's
    gradient of selu is not the derivative; this one is.)
    """

    type_string = "LeakyReLU"
    family = OperatorFamily.ACTIVATION
    # prelu's gamma is a parameter.
    reads_only_data = False
    parameter_type = LeakyReLUParameters

    @property
    def entry(self) -> SimpleEntry:
        """Map of act_type; prelu, with another input, and rrelu, with another output, have none."""
        p = self.parameters
        table = _ENTRIES if p.slope >= 0 else {**_ENTRIES, **_ENTRIES_OF_DATA}
        return table[p.act_type]

    @property
    def is_map(self) -> bool:
        """True if act_type is an elementwise map, which has an entry."""
        return self.parameters.act_type in _ENTRIES

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of data, unless prelu's channels lie along it."""
        axis, *gamma = sequences.axes
        return shared_axis([axis], 1 if gamma else None)

    def list_passed_gradients(self) -> dict[int, int]:
        """Empty: no function here is the identity."""
        return {}

    def list_arguments(self) -> tuple[str, ...]:
        """data and, for prelu, gamma."""
        return ("data", "gamma") if self.parameters.act_type == "prelu" else ("data",)

    def list_outputs(self) -> tuple[str, ...]:
        """output and, for rrelu, the hidden mask."""
        return ("output", "mask") if self.parameters.act_type == "rrelu" else ("output",)

    @property
    def num_visible_outputs(self) -> int:
        """1: the mask is hidden."""
        return 1

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data, output and mask; gamma has data's channels, or one element."""
        names = ("data", *self.list_outputs())
        data, *written = same_shape(names, [inputs[0], *outputs], "elementwise")
        if self.parameters.act_type != "prelu":
            return PartialInference([data], written, [])
        gamma = inputs[1]
        if gamma != (1,):
            channels = None if data is None else data[1] if len(data) > 1 else 1
            gamma = unify("gamma", gamma, (channels,), "data's channels, or one for all")
            if data is not None and len(data) > 1:
                data = (data[0], gamma[0], *data[2:])
                written = [data]
        return PartialInference([data, gamma], written, [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """The gradients of data and gamma are computed."""
        return (GradientKind.COMPUTES,) * len(self.list_arguments())

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and the tensors that act_type's derivative needs."""
        if self.is_map:
            return super().declare_backward_dependency(out_grad, in_data, out_data)
        return [out_grad[0], *(out_data[1:] or in_data)]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair data with the output."""
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair out_grad with data's gradient; not for prelu, whose gamma gradient needs both."""
        return [] if self.parameters.act_type == "prelu" else [(out_grad[0], in_grad[0])]

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Request random numbers for rrelu."""
        random = ResourceRequest(ResourceKind.RANDOM)
        return [random] if self.parameters.act_type == "rrelu" else []

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per element: a comparison and a product."""
        return 2 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return super().create_operator() if self.is_map else LeakyReLU(self.parameters)


class LeakyReLU(Operator):
    """NumPy body of prelu and rrelu: data where data > 0, else slope * data."""

    def __init__(self, parameters: LeakyReLUParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = data where data > 0, else slope * data; the slope is gamma or random."""
        data = call.inputs.data
        if self.parameters.act_type == "prelu":
            slopes = _along(data, call.inputs.gamma)
        else:
            slopes = self._drawn(call, data)
            call.store(mask=np.where(data > 0, 1, slopes))
        call.store(output=np.where(data > 0, data, slopes * data))

    def _drawn(self, call: ForwardCall, data: Array) -> Array:
        p = self.parameters
        if not call.is_train:
            return np.asarray(p.mean_slope, data.dtype)
        upper = call.random(0).bits(data.size) >> (32 - RANDOM_BITS)
        unit = upper.astype(data.dtype) * data.dtype.type(2.0**-RANDOM_BITS)
        width = data.dtype.type(p.upper_bound - p.lower_bound)
        slopes: Array = data.dtype.type(p.lower_bound) + unit * width
        return slopes.reshape(data.shape)

    def backward(self, call: BackwardCall) -> None:
        """Gradients: data: grad * slope; gamma: sum of grad * data over the other axes."""
        gradient = call.output_gradients.output
        if self.parameters.act_type == "rrelu":
            call.store(data=gradient * call.outputs.mask)
            return
        data, gamma = call.inputs.data, call.inputs.gamma
        lost = gradient * np.where(data > 0, 0, data)
        others = tuple(axis for axis in range(data.ndim) if axis != 1 or gamma.size == 1)
        call.store(gamma=sum_over(lost, others))
        call.store(data=gradient * np.where(data > 0, 1, _along(data, gamma)))


def _along(data: Array, gamma: Array) -> Array:
    """Reshape gamma so that it broadcasts along data's channels."""
    return gamma if data.ndim == 1 else gamma.reshape(-1, *(1,) * (data.ndim - 2))
