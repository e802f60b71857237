"""add_n: sum of any number of tensors of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from operator import add
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.dtype import BFLOAT16, FLOAT32, item_size
from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import Shape, TensorSpec, unpacked
from mxrun.codegen.scalar_value import ScalarGraph
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    OperatorProperty,
    PartialInference,
    PartialShapes,
    Precision,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import MapKernel
from mxrun.ops.copy_part import copy_part

T = TypeVar("T")


class AddNParameters(Parameters):
    """Parameters of add_n (MXNet's)."""

    num_args: Annotated[Int32, Field(ge=1)] = Field(
        description="Number of inputs; follows from the connected inputs.",
        examples=[2],
    )


@register("add_n", "ElementWiseSum")
class AddNProperty(OperatorProperty[AddNParameters]):
    """output = arg0 + arg1 + ..., added from left to right. All shapes are equal.

    Backward reads only the output's gradient, which is the gradient of every input.
    """

    type_string = "add_n"
    family = OperatorFamily.ELEMENTWISE
    parameter_type = AddNParameters
    precision = Precision.INHERIT

    def list_arguments(self) -> tuple[str, ...]:
        """arg0, arg1, ..."""
        return tuple(f"arg{index}" for index in range(self.parameters.num_args))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the shapes of all inputs and the output."""
        names = (*self.list_arguments(), "output")
        *shapes, output = same_shape(names, [*inputs, *outputs], "elementwise addition")
        return PartialInference(shapes, [output], [])

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of all inputs."""
        return shared_axis(sequences.axes)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad."""
        return [out_grad[0]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair any input with the output."""
        return [(data, out_data[0]) for data in in_data]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair out_grad with any input's gradient."""
        return [(out_grad[0], gradient) for gradient in in_grad]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One addition per element of each input but the first."""
        return (self.parameters.num_args - 1) * super().flops(in_shapes, out_shapes)

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return AddN()


class AddN(Operator):
    """NumPy body: the sum; its gradient is passed to every input."""

    def forward(self, call: ForwardCall) -> None:
        """output = ((arg0 + arg1) + arg2) + ..."""
        call.store(output=reduce(np.add, call.inputs))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of every input: grad."""
        call.store(*[call.output_gradients.output] * len(call.requests))


# Supported dtypes in memory; sums are computed in float32.
_FLOATS = (FLOAT32, BFLOAT16)


@cache
def _sum_of(count: int) -> MapKernel:
    """Return the map that adds `count` tensors from left to right."""
    graph = ScalarGraph()
    tensors = [graph.add("operand", FLOAT32, (), index) for index in range(count)]
    names = tuple(f"arg{index}" for index in range(count))
    total = reduce(add, tensors).index
    return MapKernel("sum", names, (), FLOAT32, graph, (total,), (FLOAT32,))


@implement("add_n", backend="jit")
class CompiledAddN(Implementation):
    """Sum in one pass, in the first input's layout; each tensor is float32 or bfloat16."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the sum."""
        specs = (request.outputs[0], *request.inputs)
        if any(spec.dtype not in _FLOATS for spec in specs):
            return None
        first = request.inputs[0]
        # Packed layouts depend on the dtype, so mixed dtypes need an unpacked layout.
        layout = first.layout if _alike(specs) else unpacked(first).layout
        output, *inputs = (spec.with_layout(layout) for spec in specs)
        part = _sum_of(len(inputs)).part(
            target(0),
            [source(index) for index in range(len(inputs))],
            _elements(output),
            device=request.device,
            request=request.requests[0],
            stored=[spec.dtype for spec in (output, *inputs)],
        )
        return native_kernel(
            self.name,
            [part],
            tuple(inputs),
            (output,),
            scalar.without_add_requests(request.requests),
            request.device,
            flops=prop.flops([], [output.shape]),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare copies of the gradient, in its layout."""
        (gradient,) = request.out_grad
        assert gradient is not None
        if not _alike([gradient, *request.in_grad]):
            gradient = unpacked(gradient)
        gradients = [spec.with_layout(gradient.layout) for spec in request.in_grad]
        parts = [
            copy_part(
                source(0),
                target(index),
                _elements(gradient),
                request.device,
                req,
                [gradients[index].dtype, gradient.dtype],
            )
            for index, req in enumerate(request.requests)
            if req is not OpReqType.NULL
        ]
        return native_kernel(
            self.name,
            parts,
            (gradient, *(None,) * (len(gradients) + 1)),
            tuple(gradients),
            scalar.without_add_requests(request.requests),
            request.device,
        )


def _alike(specs: Sequence[TensorSpec]) -> bool:
    """Return whether all dtypes are equal."""
    return len({spec.dtype for spec in specs}) == 1


def _elements(spec: TensorSpec) -> int:
    """Return the number of elements in memory: a packed layout may have more than the shape."""
    return spec.nbytes // item_size(spec.dtype)
