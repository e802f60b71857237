"""Activation of a dense layer's output that computes the gradient of the layer's bias, in training.

Its backward pass adds the rows of data's gradient while they are in the cache: one pass over memory
less than with a sum of its own for the bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import Field

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import FLOAT32
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, Shape
from mxrun.codegen.arguments import Float32s, Integer, Table
from mxrun.codegen.intrinsics import integer, run_map, share
from mxrun.codegen.jit import inlined, native
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    KernelPart,
    LoopPart,
    Scratch,
    Slot,
    native_kernel,
    source,
    target,
)
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import unify
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.column_sum import GROUP, BlockedRows, RowBlocks, add_rows, clear_sums
from mxrun.ops.gelu import (
    approximate_gelu,
    approximate_gelu_gradient,
    silu,
    silu_gradient,
)
from mxrun.ops.leaky_relu.operator import gelu_gradient
from mxrun.ops.map_block import BLOCK_WORDS, WORD_BYTES, MapBlocks, own_block
from mxrun.ops.sums import sum_over

T = TypeVar("T")
# Scalar functions run on numbers, arrays and symbolic values.
Scalar = Any

DATA, BIAS = range(2)
# Elements for which the gradient's code runs at a time: they are in the L1 cache when they are
# added.
_CHUNK = 4096
_FLOAT_BYTES = 4
# Tensors of the map: its output, the output's gradient and data.
_TENSORS = 3


class BiasedActivation(NamedTuple):
    """Activation and its gradient, (grad, x) -> gradient of x."""

    activation: Callable[[Scalar], Scalar]
    gradient: Callable[[Scalar, Scalar], Scalar]


ACTIVATIONS = {
    "gelu": BiasedActivation(lambda x: scalar.gelu(x), gelu_gradient),
    "gelu_tanh": BiasedActivation(approximate_gelu, approximate_gelu_gradient),
    "silu": BiasedActivation(silu, silu_gradient),
}
_OUTPUTS = {name: scalar.compile(each.activation) for name, each in ACTIVATIONS.items()}
_GRADIENTS = {name: scalar.compile(each.gradient) for name, each in ACTIVATIONS.items()}


class BiasActivationParameters(Parameters):
    """Parameters of _bias_activation."""

    act_type: Literal["gelu", "gelu_tanh", "silu"] = Field(
        default="gelu", description="Function of data."
    )


@register("_bias_activation")
class BiasActivationProperty(OperatorProperty[BiasActivationParameters]):
    """output = act(data), data [..., C], bias [C]: data are sums in which bias is a term.

    The gradient of bias is that of the sums, added over all axes but the last. Backward reads the
    output's gradient and data. The results equal those of the operators that it replaces bit for
    bit.
    """

    type_string = "_bias_activation"
    family = OperatorFamily.ACTIVATION
    parameter_type = BiasActivationParameters
    is_internal = True
    is_floating = True

    @property
    def nonstandard_gradient(self) -> str:
        """That of bias is the gradient of sums that are computed before."""
        return "The gradient of bias is that of data, summed over all axes but the last."

    def list_arguments(self) -> tuple[str, ...]:
        """data and bias."""
        return ("data", "bias")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output; bias has the size of their last axis."""
        data, bias = unify("data", inputs[DATA], outputs[0], "output"), inputs[BIAS]
        if data is not None:
            bias = unify("bias", bias, data[-1:], "data's last axis")
            data = unify("data", data, (*data[:-1], *bias), "bias")
        return PartialInference([data, bias], [data], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and data."""
        return [out_grad[0], in_data[DATA]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair data with the output."""
        return [(in_data[DATA], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair the output's gradient or data with the gradient of data."""
        return [(out_grad[0], in_grad[DATA]), (in_data[DATA], in_grad[DATA])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One per element."""
        return math.prod(out_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return BiasActivation(ACTIVATIONS[self.parameters.act_type])


class BiasActivation(Operator):
    """NumPy body."""

    def __init__(self, function: BiasedActivation) -> None:
        self.function = function

    def forward(self, call: ForwardCall) -> None:
        """output = act(data)."""
        call.store(output=self.function.activation(call.inputs.data))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data, and its sum over the rows for bias."""
        data = call.inputs.data
        gradient = self.function.gradient(call.output_gradients.output, data)
        call.store(data=gradient, bias=sum_over(gradient.reshape(-1, data.shape[-1]), 0))


class SummedMap(BlockedRows, MapBlocks):
    """Map of tensors [rows, columns], and the sums of its output's rows [blocks, columns].

    chunk_rows: rows for which the map's code runs at a time. tensors: addresses of output and
    operands.
    """

    chunk_rows: Integer
    tensors: Table
    output: Float32s


@inlined
def map_rows(call: SummedMap, own: int, first: int, last: int) -> None:
    """Run the map's code for rows first to last - 1; own: where the thread's scratch begins."""
    call.words[own] = (last - first) * call.columns
    for index in range(_TENSORS):
        address = integer(call.tensors, index) + first * call.columns * _FLOAT_BYTES
        call.words[own + 1 + index] = address
    run_map(call, 0, call.words, own)


@native
def summed_map_loop(call: SummedMap) -> None:
    """Run the map's code, and add the rows that it wrote as `column_sums_loop` does."""
    own, columns = own_block(call), call.columns
    # share() splits at multiples of 16, so each block counts as 16 elements.
    begin, end = share(call.blocks * 16)
    for block in range(begin // 16, end // 16):
        to = block * columns
        clear_sums(call.sums, to, columns)
        beyond = min((block + 1) * call.rows_per_block, call.rows)
        for first in range(block * call.rows_per_block, beyond, call.chunk_rows):
            last = min(first + call.chunk_rows, beyond)
            map_rows(call, own, first, last)
            for c in range(0, columns, GROUP):
                add_rows(call, call.output, first, last, c, to + c)


@implement("_bias_activation", backend="jit")
class CompiledBiasActivation(Implementation):
    """A map's code for float32 tensors, in backward for chunks of rows that are then added."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the output, in one pass."""
        data, bias = (spec.with_layout(PLAIN) for spec in request.inputs)
        output = request.outputs[0].with_layout(PLAIN)
        served = {data.dtype, bias.dtype, output.dtype} == {FLOAT32} and data.elements > 0
        if not served or request.requests[0] is OpReqType.NULL:
            return None
        kernel = _OUTPUTS[prop.parameters.act_type]
        return native_kernel(
            self.name,
            [kernel.part(target(0), [source(DATA)], data.elements, device=request.device)],
            (data, None),
            (output,),
            request.requests,
            request.device,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient of data, which is scratch if it is not requested, and its sum."""
        data, bias = (spec.with_layout(PLAIN) for spec in request.in_grad)
        is_scratch = request.requests[DATA] is OpReqType.NULL
        # In a chain each part has scratch space of its own, so that the sums are a tensor.
        gradient, sums = between(1) if is_scratch else target(DATA), between(0)
        kernel, device = _GRADIENTS[prop.parameters.act_type], request.device
        operands = [source(0), source(1 + DATA)]
        part = kernel.part(gradient, operands, data.elements, device=device)
        blocks = RowBlocks.of_matrix(data.elements // data.shape[-1], data.shape[-1])
        parts: list[KernelPart] = [part]
        sums_bytes = 0
        if request.requests[BIAS] is not OpReqType.NULL:
            parts = [*_summed(part, (gradient, *operands), sums, blocks, device)]
            sums_bytes = blocks.sums_bytes
        return native_kernel(
            self.name,
            [ChainPart(tuple(parts), (sums_bytes, data.nbytes * is_scratch))],
            (data, data, None, None),
            (data, bias),
            request.requests,
            device,
            flops=2 * data.elements,
        )


def _summed(
    part: LoopPart,
    slots: tuple[Slot, ...],
    sums: Slot,
    blocks: RowBlocks,
    device: DeviceDescription,
) -> list[LoopPart]:
    """Return the map that computes data's gradient, with the sum of its rows for bias.

    slots: of the gradient and of the map's operands. sums: space for those of the blocks.
    """
    arguments = SummedMap(
        rows=blocks.rows,
        columns=blocks.columns,
        blocks=blocks.count,
        rows_per_block=blocks.rows_per_block,
        chunk_rows=max(4, _CHUNK // blocks.columns // 4 * 4),
        tensors=slots,
        output=slots[0],
        sums=sums,
        words_per_worker=BLOCK_WORDS,
        words=Scratch(),
    )
    scratch = WORD_BYTES * BLOCK_WORDS * device.workers(part.tasks)
    loop = LoopPart(summed_map_loop.with_maps(scalar.map_of(part)), arguments, part.tasks, scratch)
    return [loop, blocks.total_part(sums, target(BIAS), device)]
