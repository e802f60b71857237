"""Common part of all optimizer updates: arguments, scalars of the step, gradient preprocessing.

An update is an operator: planned, profiled and overlapped like any other. It takes the weight, its
gradient and the optimizer's states, and overwrites weight and states. If requested, it takes two
small tensors, which the training loop writes:

- `gradient_scale`, of shape [1]: a further factor of the gradient (clipping by the global norm);
- `schedule`, of shape [3]: the step's factor of lr, then the bias corrections by which Adam and
  LAMB divide their moments: 1 - beta1^t and 1 - beta2^t. The rate is lr * schedule[0].

A gradient that is not finite must make the new weight or state NaN or infinite, because the
training loop detects divergence by them. Therefore clipping turns infinity into NaN instead of a
bound.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.arguments import Arguments, Float32s, Integer, Real
from mxrun.backend.jit import NativeFunction
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.kernel import (
    ForwardRequest,
    Kernel,
    OpReqType,
)
from mxrun.operator.native_kernel import KernelPart, LoopPart, source, target
from mxrun.operator.operator import ByName, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    same_shape,
)
from mxrun.operator.register import AnyProperty
from mxrun.operator.shape import unify
from mxrun.ops.copy_part import InPlaceCopyPart
from mxrun.ops.forward_only import ForwardOnlyImplementation

T = TypeVar("T")
Array = npt.NDArray[Any]

# Default of schedule and gradient_scale: factors of 1.
_ONES: npt.NDArray[np.float32] = np.ones(3, np.float32)
_NUMBERS = {"gradient_scale": ((1,), "one number"), "schedule": ((3,), "three numbers")}


class UpdateParameters(Parameters):
    """Parameters of every update (MXNet's names and defaults, and scheduled and scaled)."""

    lr: Float32 = Field(description="Learning rate.", examples=[0.1])
    wd: Float32 = Field(default=0.0, description="Weight decay.")
    rescale_grad: Float32 = Field(default=1.0, description="Factor of the gradient.")
    clip_gradient: Float32 = Field(
        default=-1.0,
        description="Limit of the rescaled gradient's absolute value; none when negative.",
    )
    scheduled: bool = Field(
        default=False,
        description="Adds a last argument `schedule` of shape [3]: the step's factor of lr and "
        "the bias corrections of the first and the second moment.",
    )
    scaled: bool = Field(
        default=False,
        description="Adds the argument `gradient_scale` of shape [1], a further factor of the "
        "gradient.",
    )


class UpdateProperty(OperatorProperty[Any]):
    """New weight and states from weight, grad and states, all of one shape.

    Every output overwrites the input that it replaces. No gradient.
    """

    parameter_type: ClassVar[type[Parameters]] = UpdateParameters
    states: ClassVar[tuple[str, ...]] = ()
    # Floating-point operations per element, including the preprocessing of the gradient.
    operations: ClassVar[int]
    body: ClassVar[type[Update]]

    def list_arguments(self) -> tuple[str, ...]:
        """weight, grad, the states; gradient_scale with scaled, schedule with scheduled."""
        optional = {"gradient_scale": self.parameters.scaled, "schedule": self.parameters.scheduled}
        return ("weight", "grad", *self.states, *(name for name in optional if optional[name]))

    def list_outputs(self) -> tuple[str, ...]:
        """The new weight and the hidden new states."""
        return ("output", *(f"{state}_output" for state in self.states))

    @property
    def num_visible_outputs(self) -> int:
        """1: the new states are hidden."""
        return 1

    def list_mutated_inputs(self) -> dict[int, int]:
        """The weight and the states are overwritten."""
        return {0: 0, **{2 + index: 1 + index for index in range(len(self.states))}}

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """No input has a gradient."""
        return (GradientKind.NONE,) * len(self.list_arguments())

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify all shapes, except gradient_scale and schedule."""
        alike = 2 + len(self.states)
        arguments = self.list_arguments()
        names = (*arguments[:alike], *self.list_outputs())
        shapes = same_shape(names, [*inputs[:alike], *outputs], "elementwise update")
        numbers: PartialShapes = [
            unify(name, shape, *_NUMBERS[name])
            for name, shape in zip(arguments[alike:], inputs[alike:], strict=True)
        ]
        return PartialInference([*shapes[:alike], *numbers], shapes[alike:], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Unify all dtypes, except gradient_scale and schedule, which are float32."""
        alike = 2 + len(self.states)
        common = next((dtype for dtype in [*inputs[:alike], *outputs] if dtype), None)
        completed = [dtype or common for dtype in inputs[:alike]]
        numbers = [dtype or "float32" for dtype in inputs[alike:]]
        return [*completed, *numbers], [dtype or common for dtype in outputs]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair every overwritten input with its output."""
        return [
            (in_data[source], out_data[target])
            for source, target in self.list_mutated_inputs().items()
        ]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Operations per element times the number of elements."""
        return self.operations * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return self.body(self)


@dataclass(frozen=True)
class UpdateStep:
    """Inputs of one update, in the weight's dtype.

    gradient: rescaled, not yet clipped. rate: lr * schedule[0]. schedule: its three numbers.
    """

    weight: Array
    gradient: Array
    states: tuple[Array, ...]
    rate: Any
    schedule: tuple[Any, ...]
    limit: float

    def clipped(self, gradient: Array) -> Array:
        """Limit a gradient to [-limit, limit]; NaN where it is not finite."""
        return clipped(gradient, self.limit)

    def number(self, value: float) -> Any:
        """Return a parameter as a scalar of the weight's dtype."""
        return self.weight.dtype.type(value)


def clipped(values: Array, limit: float) -> Array:
    """Limit values to [-limit, limit]; NaN where they are not finite."""
    with np.errstate(invalid="ignore"):
        result: Array = np.clip(values, -limit, limit) + (values - values)
    return result


def limit_of(bound: float) -> float:
    """Return the limit of one of MXNet's bounds; a negative bound means no limit."""
    return bound if bound >= 0 else math.inf


class Update(Operator):
    """NumPy body with MXNet's order of operations, in the weight's dtype."""

    def __init__(self, prop: UpdateProperty) -> None:
        self._prop = prop
        self.parameters = prop.parameters

    @abstractmethod
    def update(self, step: UpdateStep) -> Sequence[Array]:
        """Return the new weight and the new states."""

    def forward(self, call: ForwardCall) -> None:
        """Store the new weight and the new states."""
        # Compute all outputs before storing any: they may overwrite the inputs.
        call.store(*self.update(self._step(call.inputs)))

    def _step(self, tensors: ByName[Array]) -> UpdateStep:
        p = self.parameters
        weight = tensors.weight
        number = weight.dtype.type
        schedule = tensors.schedule if p.scheduled else _ONES
        scale = tensors.gradient_scale if p.scaled else _ONES
        return UpdateStep(
            weight=weight,
            gradient=tensors.grad * (number(p.rescale_grad) * number(scale[0])),
            states=tuple(tensors[name] for name in self._prop.states),
            rate=number(p.lr) * number(schedule[0]),
            schedule=tuple(map(number, schedule)),
            limit=limit_of(p.clip_gradient),
        )


class UpdateArguments(Arguments):
    """Arguments of every update loop; subclasses add the operator's states and parameters.

    count: elements of the weight. limit: that of the gradient's absolute value, or infinity. Weight
    and states are the outputs, which already hold the old values: a loop that reads and writes the
    same address can be vectorised.
    """

    count: Integer
    lr: Real
    wd: Real
    rescale_grad: Real
    limit: Real
    schedule: Float32s
    gradient_scale: Float32s
    weight: Float32s
    grad: Float32s


@dataclass(frozen=True)
class UpdateLoop:
    """Compiled loop and the class of its arguments.

    The fields have the names of the operator's tensors and parameters.
    """

    function: NativeFunction
    kind: type[UpdateArguments]

    def arguments(self, prop: AnyProperty, count: int, **others: Any) -> UpdateArguments:
        """Return the loop's arguments; `others` are fields that the operator does not have."""
        p, names = prop.parameters, prop.list_arguments()
        ones = _ONES.ctypes.data
        values: dict[str, Any] = {"schedule": ones, "gradient_scale": ones}
        values |= {name: source(index) for index, name in enumerate(names)}
        values |= {names[old]: target(new) for old, new in prop.list_mutated_inputs().items()}
        values |= {"count": count, "limit": limit_of(p.clip_gradient), **others}
        parameters = [name for name in self.kind.kinds() if name not in values]
        return self.kind(**values, **{name: float(getattr(p, name)) for name in parameters})


class CompiledUpdate(ForwardOnlyImplementation):
    """Compiled float32 loops, bit-identical to the NumPy bodies."""

    loops: ClassVar[Mapping[str, UpdateLoop]]

    def parts(self, prop: AnyProperty, count: int, threads: int) -> Sequence[KernelPart]:
        """Return the loops; weight and states are already in the outputs."""
        loop = self.loops[prop.type_string]
        return [LoopPart(loop.function, loop.arguments(prop, count), threads)]

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the update of plain tensors; no output may have a null request."""
        types = {spec.dtype for spec in request.inputs}
        if types != {"float32"} or OpReqType.NULL in request.requests:
            return None
        count = request.inputs[0].elements
        threads = team_for_elements(count, request.threads)
        copies = [
            InPlaceCopyPart(count, source(old), target(new), threads)
            for old, new in prop.list_mutated_inputs().items()
        ]
        return self.plain_kernel(prop, request, [*copies, *self.parts(prop, count, threads)])
