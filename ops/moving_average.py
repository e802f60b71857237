"""Moving average of a tensor, for BatchNorm's statistics and averaged weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
from mxrun.operator import scalar
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import source, target
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    same_shape,
)
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.ops.forward_only import ForwardOnlyImplementation

T = TypeVar("T")
Scalar = Any


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
        """The first argument is overwritten."""
        return {0: 0}

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """No input has a gradient."""
        return (GradientKind.NONE,) * len(self.list_arguments())

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify all shapes."""
        names = (*self.list_arguments(), *self.list_outputs())
        *arguments, output = same_shape(names, [*inputs, *outputs], "moving average")
        return PartialInference(arguments, [output], [])

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair the first argument with the output."""
        return [(in_data[0], out_data[0])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two products and one sum per element."""
        return 3 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return MovingAverage(self.parameters)


def averaged(average: Scalar, value: Scalar, momentum: Scalar) -> Scalar:
    """Return the new average, with MXNet's order of operations."""
    return average * momentum + value * (1 - momentum)


class MovingAverage(Operator):
    """NumPy body, in the average's dtype."""

    def __init__(self, parameters: MovingAverageParameters) -> None:
        self._parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """average_output = average * momentum + value * (1 - momentum)."""
        momentum = self._parameters.momentum
        call.store(average_output=scalar.evaluate(averaged, [*call.inputs], [momentum]))


_AVERAGE = scalar.compile(averaged, parameters=("momentum",))


@implement("_moving_average", backend="jit")
class CompiledMovingAverage(ForwardOnlyImplementation):
    """One float32 map, bit-identical to the NumPy body."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the update of plain tensors."""
        types = {spec.dtype for spec in request.inputs}
        if types != {"float32"} or OpReqType.NULL in request.requests:
            return None
        part = _AVERAGE.multi_output_part(
            [target(0)],
            [source(0), source(1)],
            request.inputs[0].elements,
            [prop.parameters.momentum],
            device=request.device,
            requests=[OpReqType.WRITE],
            in_place=True,
        )
        return self.plain_kernel(prop, request, [part])
