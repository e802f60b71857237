"""add_n: the sum of any number of tensors of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from mxrun.backend.jit import Block, float32s, integer, native, share
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import Inferred, OperatorProperty, PartialShapes, same_shape
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.tensor import Tensor
from mxrun.ops.rows import copy_part

T = TypeVar("T")

# Elements summed at a time: their partial sums stay in the first-level cache.
_CHUNK = 1024


class AddNParameters(Parameters):
    """Parameters of add_n (MXNet's)."""

    num_args: Annotated[Int32, Field(ge=1)] = Field(
        description="How many tensors are summed; follows from the inputs that are wired.",
        examples=[2],
    )


@register("add_n", "ElementWiseSum")
class AddNProperty(OperatorProperty[AddNParameters]):
    """output = arg0 + arg1 + ..., from the left, all of one shape.

    Backward reads the output's gradient only.
    """

    type_string = "add_n"
    parameter_type = AddNParameters

    def list_arguments(self) -> tuple[str, ...]:
        """arg0, arg1, ..."""
        return tuple(f"arg{index}" for index in range(self.parameters.num_args))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """All inputs and the output have one shape."""
        names = (*self.list_arguments(), "output")
        *shapes, output = same_shape(names, [*inputs, *outputs], "elementwise addition")
        return Inferred(shapes, [output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad."""
        return [out_grad[0]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The output over any input."""
        return [(data, out_data[0]) for data in in_data]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Any input's gradient over the output's."""
        return [(out_grad[0], gradient) for gradient in in_grad]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One addition for each input but the first."""
        return (self.parameters.num_args - 1) * super().flops(in_shapes, out_shapes)

    def create_operator(self) -> Operator:
        """A fold over the inputs."""
        return AddN()


class AddN(Operator):
    """The sum; its gradient goes to every input."""

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = ((arg0 + arg1) + arg2) + ..."""
        assign(out_data[0], req[0], reduce(np.add, [tensor.array for tensor in in_data]))

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
        """Every input: grad."""
        gradient = need(out_grad[0])
        for tensor, request in zip(in_grad, req, strict=True):
            assign(tensor, request, gradient)


@native
def sum_loop(block: Block) -> None:
    """output[i] = the sum of input_k[i] over k in their order; the output may lie over any input.

    Arguments: elements, threads, elements of a chunk, inputs, output, the inputs, scratch of one
    chunk for each thread. A chunk is summed there because any two of the inputs may be one memory.
    """
    count, team, chunk, inputs = (
        integer(block, 0),
        integer(block, 1),
        integer(block, 2),
        integer(block, 3),
    )
    output, scratch = float32s(block, 4), float32s(block, 5 + inputs)
    # Of 16 elements a thread, each gets its own 16.
    thread = share(block, 16 * team)[0] // 16
    place = thread * chunk
    begin, end = share(block, count)
    while begin < end:
        size = min(chunk, end - begin)
        first = float32s(block, 5)
        for i in range(size):
            scratch[place + i] = first[begin + i]
        for k in range(1, inputs):
            addend = float32s(block, 5 + k)
            for i in range(size):
                scratch[place + i] += addend[begin + i]
        for i in range(size):
            output[begin + i] = scratch[place + i]
        begin += size


@implement("add_n", backend="jit")
class CompiledAddN(Implementation):
    """One pass in float32, in the first input's layout."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """The sum."""
        layout = request.inputs[0].layout
        inputs = tuple(spec.laid_out(layout) for spec in request.inputs)
        if any(spec.dtype != "float32" for spec in inputs):
            return None
        count = inputs[0].nbytes // 4
        team = team_for_elements(count, request.threads)
        chunk = min(_CHUNK, max(count, 1))
        sources = [source(index) for index in range(len(inputs))]
        arguments: list[Slot | int] = [count, team, chunk, len(inputs), target(0), *sources]
        return native_kernel(
            self.name,
            [LoopPart(sum_loop, tuple(arguments), team, 4 * chunk * team)],
            inputs,
            (request.outputs[0].laid_out(layout),),
            request.requests,
            request.threads,
            flops=prop.flops([], [inputs[0].shape]),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Copies of the gradient, in its layout."""
        (gradient,) = request.out_grad
        assert gradient is not None
        asked = [index for index, req in enumerate(request.requests) if req is not OpReqType.NULL]
        arguments = len(request.requests)
        return native_kernel(
            self.name,
            [copy_part(gradient, source(0), target(index), request.threads) for index in asked],
            (gradient, *(None,) * (arguments + 1)),
            tuple(gradient if index in asked else None for index in range(arguments)),
            request.requests,
            request.threads,
        )
