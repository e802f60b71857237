"""Values that are carried from one run of a network to the next: `carry`, and marks of states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    CarriedState,
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    Precision,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.ops.copy_part import copy_part
from mxrun.ops.rows import zero_part
from mxrun.ops.view import ViewProperty

T = TypeVar("T")


class CarryParameters(Parameters):
    """Parameters of carry: none."""


@register("carry")
class CarryProperty(OperatorProperty[CarryParameters]):
    """output = data of the previous run; zero in the first run of an epoch or an evaluation.

    The state [shape of data] holds data for the next run. No gradient flows back to the previous
    run (truncated back-propagation): that of data is zero, and backward reads nothing.
    """

    type_string = "carry"
    parameter_type = CarryParameters
    family = OperatorFamily.SHAPE
    reads_only_data = True
    is_floating = True
    precision = Precision.INHERIT

    def list_auxiliary_states(self) -> tuple[str, ...]:
        """Data of the previous run."""
        return ("state",)

    def list_carried_states(self) -> tuple[CarriedState, ...]:
        """The state becomes data."""
        return (CarriedState("state", "data"),)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the shapes of data, state and output."""
        names = (*self.list_arguments(), *self.list_outputs())
        data, output = same_shape(names, [*inputs, *outputs], "carry")
        return PartialInference([data], [output], [data])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """The gradient is zero."""
        return (GradientKind.ZERO,)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return an empty list."""
        return []

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return 0: nothing is computed."""
        return 0

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Carry()


class Carry(Operator):
    """NumPy body: a copy of the state."""

    def forward(self, call: ForwardCall) -> None:
        """output = state."""
        call.store(output=call.auxiliary.state)

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: zero."""
        call.store(data=0)


@implement("carry", backend="jit")
class CompiledCarry(Implementation):
    """One copy of the state, which is float32, to a float32 or bfloat16 output."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the copy; data is not read."""
        output, state = (spec.with_layout(PLAIN) for spec in (*request.outputs, request.inputs[1]))
        types = [output.dtype, state.dtype]
        if state.dtype != "float32" or not {*types} <= {"float32", "bfloat16"}:
            return None
        part = copy_part(
            source(1),
            target(0),
            output.elements,
            request.device,
            request.requests[0],
            stored=types,
        )
        requests = without_add_requests(request.requests)
        return native_kernel(self.name, [part], (None, state), (output,), requests, request.device)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare a zero gradient."""
        data = request.in_grad[0].with_layout(PLAIN)
        if data.dtype != "float32":
            return None
        zero = zero_part(target(0), data.elements, request.device)
        return native_kernel(
            self.name, [zero], (None, None, None), (data,), request.requests, request.device
        )


class CarriedParameters(Parameters):
    """Parameters of _carried."""

    num_states: Annotated[int, Field(ge=1, le=64)] = Field(
        description="Number of states.", examples=[1]
    )


@register("_carried")
class CarriedProperty(ViewProperty[CarriedParameters]):
    """output = data, in the same memory; state0, state1, ... hold value0, value1, ... of this run
    in the next one.

    data is the output of a layer that has read the states, and the values are what they have become
    at its end. The values' gradients are zero.
    """

    type_string = "_carried"
    parameter_type = CarriedParameters
    is_internal = True
    is_floating = True
    reads_only_data = True
    precision = Precision.INHERIT

    def list_arguments(self) -> tuple[str, ...]:
        """Data, then the values."""
        return ("data", *(f"value{index}" for index in range(self.parameters.num_states)))

    def list_auxiliary_states(self) -> tuple[str, ...]:
        """The values of the previous run."""
        return tuple(f"state{index}" for index in range(self.parameters.num_states))

    def list_carried_states(self) -> tuple[CarriedState, ...]:
        """Each state becomes its value."""
        return tuple(
            CarriedState(f"state{index}", f"value{index}")
            for index in range(self.parameters.num_states)
        )

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the shapes of data and output; each state has that of its value."""
        data, output = same_shape(["data", "output"], [inputs[0], outputs[0]], "carried states")
        return PartialInference([data, *inputs[1:]], [output], [*inputs[1:]])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """Those of the values are zero."""
        return (GradientKind.COMPUTES, *(GradientKind.ZERO,) * self.parameters.num_states)
