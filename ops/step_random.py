"""Random states of the steps of a recurrence, each with a key of its own; made by the compiler."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.codegen.arguments import Arguments, Int64s, Integer
from mxrun.codegen.jit import native
from mxrun.operator.kernel import ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, source, target
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
)
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.operator.shape import unify
from mxrun.ops.forward_only import ForwardOnlyImplementation

# Numbers of a state: key, step of training, and part of the batch.
_NUMBERS = 3
# Keys have 63 bits. The factors are the odd numbers of SplitMix64 (Steele et al. 2014).
_MASK = (1 << 63) - 1
_FIRST, _SECOND = 0x1F58476D1CE4E5B9, 0x14D049BB133111EB


class StepRandomParameters(Parameters):
    """Parameters of `_step_random`."""

    steps: int = Field(1, ge=1, description="Number of steps.")
    first: int = Field(0, ge=0, description="Number of the first step.")


@register("_step_random")
class StepRandomProperty(OperatorProperty[StepRandomParameters]):
    """output [steps, 3]: the random state [3] with another key for every step."""

    type_string = "_step_random"
    parameter_type = StepRandomParameters
    is_internal = True
    unchecked = "It maps the keys of random streams, which are no numbers to compute with."

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Set both shapes."""
        rows = (self.parameters.steps, _NUMBERS)
        given = unify("data", inputs[0], (_NUMBERS,))
        return PartialInference([given], [unify("output", outputs[0], rows)], [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """Keys have no gradient."""
        return (GradientKind.ZERO,)

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return StepRandom(self.parameters)


def step_key(key: int, step: int) -> int:
    """Return the key of one step of a recurrence."""
    mixed = (key ^ ((step + 1) * _FIRST)) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _SECOND) & _MASK
    return mixed ^ (mixed >> 27)


class StepRandom(Operator):
    """NumPy body."""

    def __init__(self, parameters: StepRandomParameters) -> None:
        self._numbers = range(parameters.first, parameters.first + parameters.steps)

    def forward(self, call: ForwardCall) -> None:
        """output[t] = data with the key of step t."""
        key, *rest = (int(number) for number in call.inputs.data)
        rows = [[step_key(key, step), *rest] for step in self._numbers]
        call.store(output=np.array(rows, np.int64))


class StepKeys(Arguments):
    """Arguments of `step_keys_loop`."""

    start: Integer
    count: Integer
    first: Integer
    second: Integer
    mask: Integer
    state: Int64s
    output: Int64s


@native
def step_keys_loop(call: StepKeys) -> None:
    """Compute the states of all steps, as `step_key`."""
    for step in range(call.count):
        mixed = (call.state[0] ^ ((call.start + step + 1) * call.first)) & call.mask
        mixed = ((mixed ^ (mixed >> 30)) * call.second) & call.mask
        call.output[3 * step] = mixed ^ (mixed >> 27)
        call.output[3 * step + 1] = call.state[1]
        call.output[3 * step + 2] = call.state[2]


@implement("_step_random", backend="jit")
class CompiledStepRandom(ForwardOnlyImplementation):
    """One loop over the steps."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the loop."""
        keys = StepKeys(
            start=prop.parameters.first,
            count=prop.parameters.steps,
            first=_FIRST,
            second=_SECOND,
            mask=_MASK,
            state=source(0),
            output=target(0),
        )
        return self.plain_kernel(prop, request, [LoopPart(step_keys_loop, keys, 1)])
