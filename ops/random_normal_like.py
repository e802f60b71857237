"""random_normal_like: normally distributed numbers in the shape of another tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Int64s, Integer
from mxrun.codegen.intrinsics import random_words, share
from mxrun.codegen.jit import native
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.kernel import ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
    same_shape,
)
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.forward_only import ForwardOnlyImplementation
from mxrun.ops.strided_map import strided_part

# Bits of a word that a float32 in [0, 1) holds.
_BITS = 24
NORMAL = scalar.compile(
    lambda u, v, loc, scale: (
        loc + scale * scalar.sqrt(-2.0 * scalar.log(1.0 - u)) * scalar.cos(2.0 * math.pi * v)
    ),
    parameters=("loc", "scale"),
)


class RandomNormalParameters(Parameters):
    """Parameters of random_normal_like (MXNet's)."""

    loc: Float32 = Field(default=0.0, description="Mean of the distribution.")
    scale: Float32 = Field(default=1.0, ge=0, description="Standard deviation.")


@register(
    "random_normal_like",
    "_random_normal_like",
    foreign={"random_normal_like": "gaussiannoise randnlike normallike sampling"},
)
class RandomNormalProperty(OperatorProperty[RandomNormalParameters]):
    """output = loc + scale * z, with z from the standard normal distribution; data gives the shape.

    z = sqrt(-2 ln(1 - u)) cos(2 pi v) (Box and Muller 1958) for element i, in row-major order; u
    and v are the upper 24 bits of the words 2 i and 2 i + 1 of the operator's random stream, times
    2^-24. They are other numbers in every step of training; an evaluation draws, too, the same ones
    each time. data's gradient is zero: the numbers of data are not read.
    """

    type_string = "random_normal_like"
    family = OperatorFamily.RANDOM
    parameter_type = RandomNormalParameters

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the shapes of data and output."""
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """The gradient of data is zero."""
        return (GradientKind.ZERO,)

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Request random numbers."""
        return [ResourceRequest(ResourceKind.RANDOM)]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Count eight per element, with one for each function."""
        return 8 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return RandomNormal(self.parameters)


class RandomNormal(Operator):
    """NumPy body; draws from the random stream of request 0."""

    def __init__(self, parameters: RandomNormalParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = loc + scale * z."""
        data = call.inputs.data
        words = call.random(0).bits(2 * data.size) >> np.uint32(32 - _BITS)
        u, v = words.astype(np.float64).reshape(-1, 2).T * 2.0**-_BITS
        drawn = np.sqrt(-2.0 * np.log1p(-u)) * np.cos(2.0 * math.pi * v)
        output = self.parameters.loc + self.parameters.scale * drawn
        call.store(output=output.reshape(data.shape).astype(data.dtype))


class UnitNumbers(Arguments):
    """Arguments of `unit_numbers_loop`, which draws `count` pairs.

    state: the batch's key and step, and the index of the part of the batch. stream: the node's own
    stream, combined with the key.
    """

    count: Integer
    state: Int64s
    stream: Integer
    first: Float32s
    second: Float32s


@native
def unit_numbers_loop(call: UnitNumbers) -> None:
    """first[i], second[i] = upper 24 bits of the words 2 i and 2 i + 1, times 2^-24."""
    state, first, second = call.state, call.first, call.second
    key, step = state[0] ^ call.stream, state[1]
    # Index, among the words of the entire batch, of this part's first word.
    origin = 2 * state[2] * call.count
    unit, low = np.float32(2.0**-24), np.uint64(8)
    begin, end = share(call.count)
    for i in range(begin, end):
        word = origin + 2 * i
        words = random_words(key, step, word // 4)
        # A pair is one half of a block of four.
        one, two = (words[0], words[1]) if word % 4 == 0 else (words[2], words[3])
        first[i] = np.float32(np.int32(one >> low)) * unit
        second[i] = np.float32(np.int32(two >> low)) * unit


@implement("random_normal_like", backend="jit")
class CompiledRandomNormal(ForwardOnlyImplementation):
    """Pairs of uniform numbers in scratch space, then a compiled map of them."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare both loops."""
        data = request.inputs[0].with_layout(PLAIN)
        if data.dtype != "float32":
            return None
        drawn = UnitNumbers(
            count=data.elements,
            state=source(1),
            stream=request.stream,
            first=between(0),
            second=between(1),
        )
        uniform = LoopPart(
            unit_numbers_loop, drawn, request.device.tasks_for_elements(data.elements)
        )
        operands = [(between(0), data), (between(1), data)]
        parameters = (prop.parameters.loc, prop.parameters.scale)
        mapped = strided_part(NORMAL, [target(0)], data, operands, request.device, parameters)
        return native_kernel(
            self.name,
            [ChainPart((uniform, mapped), (data.nbytes, data.nbytes))],
            (None, *request.inputs[1:]),
            (data,),
            request.requests,
            request.device,
            flops=prop.flops([data.shape], [data.shape]),
        )
