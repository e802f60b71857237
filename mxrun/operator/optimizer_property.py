"""Updates of optimizers as operators: one scalar function serves every device.

    def sgd_mom_update(weight, grad, mom, rate, momentum, wd, clip_gradient):
        moved = mom * momentum - (clipped(grad, clip_gradient) + weight * wd) * rate
        return weight + moved, moved

    @register_update("sgd_mom_update")
    class SgdMomUpdateProperty(OptimizerProperty):
        "mom_output = momentum * mom - lr * (clip(rescale_grad * grad) + wd * weight), ..."

        type_string = "sgd_mom_update"
        parameter_type = SgdMomUpdateParameters
        states = ("mom",)
        update = staticmethod(sgd_mom_update)

An update is planned, profiled and overlapped like any other operator. It overwrites the weight and
the states. The function is written in the vocabulary of `mxrun.operator.scalar` and returns the new
weight, followed by the new states; `update_map` says which arguments it may have. The NumPy body,
the compiled loop and the kernel of graphics cards follow from it.

If requested, an update takes two small tensors, which the training loop writes:

- `gradient_scale`, of shape [1]: a further factor of the gradient (1 / the rows of the update, and
  clipping by the global norm);
- `schedule`, of shape [3]: the step's factor of lr, then the bias corrections by which Adam and
  LAMB divide their moments: 1 - beta1^t and 1 - beta2^t.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import Diagnostic, UserError, location_of
from mxrun.base.near_names import nearest
from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import PLAIN, Shape
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, Place, Slot, native_kernel, source, target
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import unify
from mxrun.operator.simple_entry import is_number
from mxrun.operator.update_map import GRADIENT_SCALE, SCHEDULE, STEP_NUMBERS, UpdateMap

T = TypeVar("T")
Array = npt.NDArray[Any]

# Default of schedule and gradient_scale: factors of 1.
_ONES: npt.NDArray[np.float32] = np.ones(3, np.float32)
_NUMBERS = {GRADIENT_SCALE: ((1,), "one number"), SCHEDULE: ((3,), "three numbers")}
_FLOAT32_BYTES = 4


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


class OptimizerProperty(OperatorProperty[Any]):
    """New weight and states from weight, grad and states, all of one shape.

    Every output overwrites the input that it replaces. No gradient.

    states: names of the states. update: scalar function that returns the new weight and states.
    update_map: the traced function, which `register_update` adds.
    """

    parameter_type: ClassVar[type[Parameters]] = UpdateParameters
    states: ClassVar[tuple[str, ...]] = ()
    update: ClassVar[Callable[..., Any]]
    update_map: ClassVar[UpdateMap]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the inputs that have the weight's shape."""
        return ("weight", "grad", *self.states)

    def list_arguments(self) -> tuple[str, ...]:
        """weight, grad, the states; gradient_scale with scaled, schedule with scheduled."""
        optional = {GRADIENT_SCALE: self.parameters.scaled, SCHEDULE: self.parameters.scheduled}
        return (*self.tensors, *(name for name in optional if optional[name]))

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
        alike, arguments = len(self.tensors), self.list_arguments()
        names = (*self.tensors, *self.list_outputs())
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
        alike = len(self.tensors)
        common = next((dtype for dtype in [*inputs[:alike], *outputs] if dtype), None)
        completed = [dtype or common for dtype in inputs[:alike]]
        numbers = [dtype or FLOAT32 for dtype in inputs[alike:]]
        return [*completed, *numbers], [dtype or common for dtype in outputs]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair every overwritten input with its output."""
        return [(in_data[old], out_data[new]) for old, new in self.list_mutated_inputs().items()]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Operations per element times the number of elements."""
        return self.update_map.operations * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Update(self)


class Update(Operator):
    """NumPy body: the function on arrays; all values are computed before any is stored."""

    def __init__(self, prop: OptimizerProperty) -> None:
        self.prop = prop

    def updated(self, operands: Mapping[str, Array]) -> Sequence[Array]:
        """Return the new weight and states; `operands` holds the tensors and the step's numbers."""
        return self.prop.update_map.evaluate(operands, self.prop.parameters)

    def forward(self, call: ForwardCall) -> None:
        """Store the new weight and states, after all of them are computed."""
        given = {name: call.inputs[name] for name in self.prop.list_arguments()}
        operands = {name: given[name] for name in self.prop.tensors}
        for number, (tensor, index) in STEP_NUMBERS.items():
            element = given.get(tensor, _ONES)[index : index + 1]
            operands[number] = element.astype(operands["weight"].dtype)
        call.store(*self.updated(operands))


class UpdateImplementation(Implementation):
    """One compiled loop for the weight and all states, bit-identical to the NumPy body.

    The weight, the gradient and the states are float32 or bfloat16; the loop computes in float32.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the update of plain tensors."""
        assert isinstance(prop, OptimizerProperty)
        alike = len(prop.tensors)
        read, numbers = request.inputs[:alike], request.inputs[alike:]
        if any(spec.dtype not in (FLOAT32, BFLOAT16) for spec in (*read, *request.outputs)):
            return None
        if any(spec.dtype != FLOAT32 for spec in numbers):
            return None
        needed = any(req is not OpReqType.NULL for req in request.requests)
        return native_kernel(
            self.name,
            self.parts(prop, request, places_of(prop)) if needed else [],
            tuple(spec.with_layout(PLAIN) for spec in request.inputs),
            tuple(spec.with_layout(PLAIN) for spec in request.outputs),
            without_add_requests(request.requests),
            request.device,
            flops=prop.flops([spec.shape for spec in request.inputs], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: an update has no gradient."""
        return None

    def parts(
        self, prop: OptimizerProperty, request: ForwardRequest, places: dict[str, Place]
    ) -> Sequence[KernelPart]:
        """Return the loops; `places` holds the tensors and the step's numbers by name."""
        update, count = prop.update_map, len(prop.list_outputs())
        specs = dict(zip(prop.tensors, request.inputs, strict=False))
        memory = [specs[name].dtype if name in specs else FLOAT32 for name in update.operands]
        return [
            update.part(
                [target(index) for index in range(count)],
                places,
                request.inputs[0].elements,
                prop.parameters,
                device=request.device,
                requests=request.requests,
                stored=[*(spec.dtype for spec in request.outputs), *memory],
            )
        ]


def places_of(prop: OptimizerProperty) -> dict[str, Place]:
    """Return where the tensors and the step's numbers are, by name; a number not given is 1."""
    slots = {name: source(index) for index, name in enumerate(prop.list_arguments())}
    places: dict[str, Place] = {name: slots[name] for name in prop.tensors}
    for number, (tensor, index) in STEP_NUMBERS.items():
        slot = slots.get(tensor)
        places[number] = (
            _ONES[:1] if slot is None else Slot(slot.group, slot.index, _FLOAT32_BYTES * index)
        )
    return places


PropertyClass = TypeVar("PropertyClass", bound=type[OptimizerProperty])


def register_update(
    name: str, loops: type[UpdateImplementation] = UpdateImplementation
) -> Callable[[PropertyClass], PropertyClass]:
    """Class decorator: register an update and its compiled loops under `name`.

    Raises UserError, at the line of the update's function, for an argument that is no tensor,
    number of the step or parameter, for operations that no map supports, for another number of
    results than 1 and the states, and for a function that ignores the learning rate.
    """

    def add(property_class: PropertyClass) -> PropertyClass:
        property_class.update_map = _checked_map(property_class)
        register(name)(property_class)
        implement(name, backend="jit")(loops)
        return property_class

    return add


def _checked_map(property_class: type[OptimizerProperty]) -> UpdateMap:
    function = getattr(property_class, "update", None)
    if not isinstance(function, types.FunctionType):
        problem = f"{property_class.__name__} has no update"
        expected = "update = staticmethod(f), with a function f of the weight, grad and states"
        raise UserError(Diagnostic(problem, expected=expected))
    place = location_of(function)
    own, kind, states = (
        property_class.__name__,
        property_class.parameter_type,
        property_class.states,
    )
    if not issubclass(kind, UpdateParameters):
        expected = "a subclass of UpdateParameters (mxrun.operator.optimizer_property)"
        raise UserError(Diagnostic(f"the parameters of {own}", place, expected, kind.__name__))
    fields = kind.model_fields
    taken = {"weight", "grad", "rate", *STEP_NUMBERS, *fields}
    clashing = [name for index, name in enumerate(states) if name in {*taken, *states[:index]}]
    if clashing:
        problem = f"the state {clashing[0]!r} of {own} has a name that is taken"
        raise UserError(Diagnostic(problem, place, f"none of {', '.join(sorted(taken))}"))
    allowed = ("weight", "grad", *states, "rate", *STEP_NUMBERS, *fields)
    update = UpdateMap(function, ("weight", "grad", *states))
    unknown = [name for name in update.arguments if name not in allowed]
    if unknown:
        problem, expected = f"{function.__name__} gets {', '.join(unknown)}", ", ".join(allowed)
        raise UserError(Diagnostic(problem, place, expected, hint=nearest(unknown[0], allowed)))
    vague = [name for name in update.arguments if name in fields and not is_number(fields[name])]
    if vague:
        problem = f"{function.__name__} gets the parameter {vague[0]!r}, which is not a number"
        hint = "a value such as -1 can stand for none, as in clip_gradient"
        raise UserError(Diagnostic(problem, place, "a number", hint=hint))
    results = ("weight", *states)
    if len(update.kernel.results) != len(results):
        problem = f"{function.__name__} returns {len(update.kernel.results)} values"
        raise UserError(Diagnostic(problem, place, f"the new {', '.join(results)}"))
    # A property with a body of its own, such as LAMB, may apply the rate there.
    own_body = property_class.create_operator is not OptimizerProperty.create_operator
    if not own_body and update.operands.index("schedule") not in update.kernel.operands_read:
        problem = f"{function.__name__} ignores the learning rate"
        raise UserError(Diagnostic(problem, place, hint="multiply the step by the argument `rate`"))
    return update
