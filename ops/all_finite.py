"""all_finite: whether tensors hold neither NaN nor infinity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Floats, Integer
from mxrun.codegen.intrinsics import current_task, share
from mxrun.codegen.jit import native
from mxrun.codegen.vectors import LANES, add_lanes, lanes, load_lanes, subtract_lanes, sum_lanes
from mxrun.operator.family import OperatorFamily
from mxrun.operator.kernel import ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, Scratch, Slot, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
)
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.operator.shape import unify
from mxrun.ops.forward_only import ForwardOnlyImplementation

T = TypeVar("T")
_FLAG_BYTES = 4


class FiniteProperty(OperatorProperty[Any]):
    """output [1], float32 = 1 if every element of every input is finite, else 0.

    The inputs have any shapes and floating types. The gradients are zero; backward reads nothing.
    """

    family = OperatorFamily.REDUCTION

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Set the output's shape to [1]."""
        return PartialInference(inputs, [unify("output", outputs[0], (1,), "one number")], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """The output is float32, whatever the types of the inputs are."""
        return inputs, [FLOAT32]

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """The gradient is zero: the output is piecewise constant."""
        return (GradientKind.ZERO,) * len(self.list_arguments())

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return an empty list."""
        return []

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One subtraction and one addition per element."""
        return 2 * sum(map(math.prod, in_shapes))

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return AllFinite()


class AllFiniteParameters(Parameters):
    """Parameters of all_finite: none."""


@register("all_finite")
class AllFiniteProperty(FiniteProperty):
    """output [1], float32 = 1 if every element of data is finite, else 0. The gradient is zero;
    backward reads nothing.
    """

    type_string = "all_finite"
    parameter_type = AllFiniteParameters


class ManyFiniteParameters(Parameters):
    """Parameters of _all_finite."""

    num_args: Annotated[Int32, Field(ge=1)] = Field(description="Number of inputs.", examples=[2])


@register("_all_finite")
class ManyFiniteProperty(FiniteProperty):
    """output [1], float32 = 1 if every element of all inputs is finite, else 0. The inputs have any
    shapes. The gradients are zero; backward reads nothing.
    """

    type_string = "_all_finite"
    parameter_type = ManyFiniteParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """arg0, arg1, ..."""
        return tuple(f"arg{index}" for index in range(self.parameters.num_args))


class AllFinite(Operator):
    """NumPy body."""

    def forward(self, call: ForwardCall) -> None:
        """output = 1 if all are finite."""
        call.store(output=float(all(np.isfinite(each).all() for each in call.inputs)))

    def backward(self, call: BackwardCall) -> None:
        """Gradients of the inputs: zero."""
        call.store(*(0 for _ in call.results))


class Differences(Arguments):
    """Arguments of `differences_loop`: `flags` has an element for each task, from `first` on."""

    count: Integer
    data: Floats
    first: Integer
    flags: Float32s


@native
def differences_loop(call: Differences) -> None:
    """flags[first + task] = the sum of data - data over the task's elements.

    A difference is 0 for a finite number and NaN for others.
    """
    total = lanes(0.0)
    begin, end = share(call.count)
    for i in range(begin, end, LANES):
        values = load_lanes(call.data, i, end - i)
        total = add_lanes(total, subtract_lanes(values, values))
    task, _ = current_task()
    call.flags[call.first + task] = sum_lanes(total, LANES)


class Verdict(Arguments):
    """Arguments of `verdict_loop`: `count` flags."""

    count: Integer
    flags: Float32s
    output: Float32s


@native
def verdict_loop(call: Verdict) -> None:
    """output = 1 if all flags are 0, and 0 if any is NaN."""
    total = np.float32(0.0)
    for i in range(call.count):
        total += call.flags[i]
    call.output[0] = np.float32(1.0 if total == 0 else 0.0)


@implement("all_finite", "_all_finite", backend="jit")
class CompiledFinite(ForwardOnlyImplementation):
    """A pass over every input, and one over the flags of all tasks."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare plain float32 and bfloat16 inputs."""
        if any(spec.dtype not in (FLOAT32, BFLOAT16) for spec in request.inputs):
            return None
        tasks = [request.device.tasks_for_elements(spec.elements) for spec in request.inputs]
        scratch_bytes = sum(tasks) * _FLAG_BYTES
        parts, first = [], 0
        for index, (spec, own) in enumerate(zip(request.inputs, tasks, strict=True)):
            parts.append(_differences(spec, source(index), first, own, scratch_bytes))
            first += own
        verdict = Verdict(count=first, flags=Scratch(), output=target(0))
        last = LoopPart(verdict_loop, verdict, 1, scratch_bytes)
        return self.plain_kernel(prop, request, [*parts, last])


def _differences(
    spec: TensorSpec, data: Slot, first: int, tasks: int, scratch_bytes: int
) -> LoopPart:
    loop = differences_loop.bfloat16 if spec.dtype == BFLOAT16 else differences_loop
    given = Differences(count=spec.elements, data=data, first=first, flags=Scratch())
    return LoopPart(loop, given, tasks, scratch_bytes)
