"""Zeros: a tensor of zeros, such as a state before the first step; made by the compiler only."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec
from mxrun.codegen.arguments import Arguments, Integer, Uint8s
from mxrun.codegen.jit import native
from mxrun.codegen.loops import elements_of_task
from mxrun.operator.kernel import ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, target
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
)
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.operator.shape import unify
from mxrun.ops.forward_only import ForwardOnlyImplementation


class ZerosParameters(Parameters):
    """Parameters of `_zeros`."""

    shape: tuple[int, ...] = Field(description="Shape of the tensor.", examples=[(2, 3)])
    dtype: Literal["float32", "float64", "bfloat16", "uint8", "int8", "int32", "int64"] = Field(
        "float32", description="Element type of the tensor."
    )


@register("_zeros")
class ZerosProperty(OperatorProperty[ZerosParameters]):
    """output = 0 everywhere."""

    type_string = "_zeros"
    parameter_type = ZerosParameters
    is_internal = True
    unchecked = "It has no input."

    def list_arguments(self) -> tuple[str, ...]:
        """None."""
        return ()

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Set the output's shape."""
        return PartialInference([], [unify("output", outputs[0], self.parameters.shape)], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Set the output's type."""
        return [], [self.parameters.dtype]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Zeros()


class Zeros(Operator):
    """NumPy body."""

    def forward(self, call: ForwardCall) -> None:
        """output = 0."""
        call.outputs.output.fill(0)


class ZeroedBytes(Arguments):
    """Arguments of `zeros_loop`."""

    count: Integer
    output: Uint8s


@native
def zeros_loop(call: ZeroedBytes) -> None:
    """Set `count` bytes to 0."""
    for i in elements_of_task(call.count):
        call.output[i] = 0


@implement("_zeros", backend="jit")
class CompiledZeros(ForwardOnlyImplementation):
    """One loop over the bytes."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the loop."""
        spec = TensorSpec(prop.parameters.shape, prop.parameters.dtype)
        tasks = request.device.tasks_for_elements(spec.elements)
        filling = ZeroedBytes(count=spec.nbytes, output=target(0))
        return self.plain_kernel(prop, request, [LoopPart(zeros_loop, filling, tasks)])
