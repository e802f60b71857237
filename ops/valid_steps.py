"""Which records of a batch have a step at each time; made by the compiler only."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.codegen.arguments import Arguments, Float32s, Int32s, Int64s, Integer
from mxrun.codegen.jit import native
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, source, target
from mxrun.operator.operator import ForwardCall, Operator
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


class ValidStepsParameters(Parameters):
    """Parameters of `_valid_steps`."""

    steps: int = Field(1, ge=1, description="Number of steps.")


@register("_valid_steps")
class ValidStepsProperty(OperatorProperty[ValidStepsParameters]):
    """output[t, n] = 1 if t < length[n], else 0; count = max(length), from 1 to `steps`.

    data: the lengths [batch], int32. output [steps, batch] is float32, count [1] int64.
    """

    type_string = "_valid_steps"
    parameter_type = ValidStepsParameters
    is_internal = True
    unchecked = "Its outputs have types of their own, which the checker does not vary."

    def list_outputs(self) -> tuple[str, ...]:
        """The mask, and the number of steps of the longest record."""
        return ("output", "count")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer the batch from either side."""
        given = unify("data", inputs[0], (None,))
        mask = unify("output", outputs[0], (self.parameters.steps, *given))
        return PartialInference([mask[1:]], [mask, unify("count", outputs[1], (1,))], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Lengths are int32."""
        return ["int32"], ["float32", "int64"]

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """Lengths have a zero gradient."""
        return (GradientKind.ZERO,)

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return ValidSteps(self.parameters.steps)


class ValidSteps(Operator):
    """NumPy body."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def forward(self, call: ForwardCall) -> None:
        """Compare every time with every length."""
        lengths = call.inputs.data
        longest = int(np.clip(lengths.max(initial=1), 1, self._steps))
        valid = np.arange(self._steps)[:, None] < lengths
        call.store(output=valid.astype(np.float32), count=np.array([longest], np.int64))


class StepMask(Arguments):
    """Arguments of `valid_steps_loop`; output and count may be None."""

    steps: Integer
    batch: Integer
    lengths: Int32s
    output: Float32s
    longest: Int64s


@native
def valid_steps_loop(call: StepMask) -> None:
    """Write the mask, and the clipped length of the longest record."""
    longest = 1
    for record in range(call.batch):
        longest = max(longest, min(call.lengths[record], call.steps))
    if call.longest is not None:
        call.longest[0] = longest
    if call.output is not None:
        for step in range(call.steps):
            for record in range(call.batch):
                valid = np.float32(1) if step < call.lengths[record] else np.float32(0)
                call.output[step * call.batch + record] = valid


@implement("_valid_steps", backend="jit")
class CompiledValidSteps(ForwardOnlyImplementation):
    """One loop on one thread."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the loop."""
        (lengths,) = request.inputs
        if lengths.dtype != "int32":
            return None
        wanted = [each is not OpReqType.NULL for each in request.requests]
        mask = StepMask(
            steps=prop.parameters.steps,
            batch=lengths.elements,
            lengths=source(0),
            output=target(0) if wanted[0] else None,
            longest=target(1) if wanted[1] else None,
        )
        return self.plain_kernel(prop, request, [LoopPart(valid_steps_loop, mask, 1)])
