"""Moving average of a tensor, for BatchNorm's statistics and averaged weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from mxrun.backend.arguments import Arguments, Float32s, Integer, Real
from mxrun.backend.jit import native, share
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, source, target
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    same_shape,
)
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.ops.copy_part import InPlaceCopyPart
from mxrun.ops.forward_only import ForwardOnlyImplementation

T = TypeVar("T")


class MovingAverageParameters(Parameters):
    """Parameters of _moving_average."""

    momentum: Annotated[float, Field(ge=0, le=1)] = Field(
        description="Weight of the previous average.", examples=[0.9]
    )


@register("_moving_average")
class MovingAverageProperty(OperatorProperty[MovingAverageParameters]):
    """average_output = momentum * average + (1 - momentum) * value.

    All shapes are equal; average_output overwrites average. No gradient.
    """

    type_string = "_moving_average"
    parameter_type = MovingAverageParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """The previous average and the new value."""
        return ("average", "value")

    def list_outputs(self) -> tuple[str, ...]:
        """The new average."""
        return ("average_output",)

    def list_mutated_inputs(self) -> dict[int, int]:
        """The average is overwritten."""
        return {0: 0}

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """No input has a gradient."""
        return (GradientKind.NONE, GradientKind.NONE)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify all shapes."""
        names = (*self.list_arguments(), *self.list_outputs())
        average, value, output = same_shape(names, [*inputs, *outputs], "moving average")
        return PartialInference([average, value], [output], [])

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair the previous average with the new one."""
        return [(in_data[0], out_data[0])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two products and one sum per element."""
        return 3 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return MovingAverage(self.parameters)


class MovingAverage(Operator):
    """NumPy body with MXNet's order of operations, in the average's dtype."""

    def __init__(self, parameters: MovingAverageParameters) -> None:
        self._parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """average_output = average * momentum + value * (1 - momentum)."""
        average, value = call.inputs
        momentum = average.dtype.type(self._parameters.momentum)
        call.store(average_output=average * momentum + value * (1 - momentum))


class AverageUpdate(Arguments):
    """Arguments of `moving_average_loop`."""

    count: Integer
    momentum: Real
    average: Float32s
    value: Float32s


@native
def moving_average_loop(call: AverageUpdate) -> None:
    """average[i] = average[i] * momentum + value[i] * (1 - momentum)."""
    rest = np.float32(1) - call.momentum
    begin, end = share(call.count)
    for i in range(begin, end):
        call.average[i] = call.average[i] * call.momentum + call.value[i] * rest


@implement("_moving_average", backend="jit")
class CompiledMovingAverage(ForwardOnlyImplementation):
    """One float32 loop, bit-identical to the NumPy body."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the update of plain tensors."""
        types = {spec.dtype for spec in request.inputs}
        if types != {"float32"} or OpReqType.NULL in request.requests:
            return None
        count = request.inputs[0].elements
        threads = team_for_elements(count, request.threads)
        update = AverageUpdate(
            count=count,
            momentum=float(prop.parameters.momentum),
            average=target(0),
            value=source(1),
        )
        copy = InPlaceCopyPart(count, source(0), target(0), threads)
        loop = LoopPart(moving_average_loop, update, threads)
        return self.plain_kernel(prop, request, [copy, loop])
