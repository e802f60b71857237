"""_assign: a state takes a value, such as that of a recurrence after a run."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
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
from mxrun.ops.copy_part import copy_part
from mxrun.ops.forward_only import ForwardOnlyImplementation


class AssignParameters(Parameters):
    """Parameters of _assign: none."""


@register("_assign")
class AssignProperty(OperatorProperty[AssignParameters]):
    """state_output = value, which overwrites the state. All shapes are equal. No gradient."""

    type_string = "_assign"
    parameter_type = AssignParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """The value."""
        return ("value",)

    def list_auxiliary_states(self) -> tuple[str, ...]:
        """The state."""
        return ("state",)

    def list_outputs(self) -> tuple[str, ...]:
        """The new state."""
        return ("state_output",)

    def list_mutated_inputs(self) -> dict[int, int]:
        """The state is overwritten."""
        return {1: 0}

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """The value has no gradient."""
        return (GradientKind.NONE,)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify all shapes."""
        names = (*self.list_arguments(), *self.list_outputs())
        value, output = same_shape(names, [*inputs, *outputs], "assignment")
        return PartialInference([value], [output], [output])

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return 0: nothing is computed."""
        return 0

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Assign()


class Assign(Operator):
    """NumPy body."""

    def forward(self, call: ForwardCall) -> None:
        """state_output = value."""
        call.store(state_output=call.inputs.value)


@implement("_assign", backend="jit")
class CompiledAssign(ForwardOnlyImplementation):
    """One copy."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the copy of a float32 tensor."""
        (value, _), (output,) = request.inputs, request.outputs
        if (value.dtype, output.dtype) != (
            "float32",
            "float32",
        ) or OpReqType.NULL in request.requests:
            return None
        part = copy_part(source(0), target(0), value.elements, request.device)
        return self.plain_kernel(prop, request, [part])
