"""SimpleOp: registration of an operator of one or two inputs and one output (MXNet's SimpleOp).

    from mxrun.operator.scalar import sigmoid
    from mxrun.operator.simple import reads_inputs, simple_operator

    def swish_gradient(out_grad, x):
        gate = sigmoid(x)
        return out_grad * (gate + x * gate * (1 - gate))

    @simple_operator("swish", gradient=reads_inputs(swish_gradient))
    def swish(x):
        "output = x * sigmoid(x). Backward reads the output's gradient and x."
        return x * sigmoid(x)

A function of tensors, followed by parameters by name, is a map of scalars, written in the
vocabulary of `mxrun.operator.scalar`. The NumPy body, the compiled loops (one pass for every
request) and the kernels of graphics cards are derived from it. The operator's inputs have MXNet's
names: `data`, or `lhs` and `rhs`.

A function that is no map operates on arrays. Its first argument is called `env` and receives
EnvArguments. The others receive read-only NumPy arrays, and their names are the operator's input
names. It returns an array, which is stored according to the request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import Field, create_model

from mxrun.base import flags
from mxrun.base.docstrings import docstring
from mxrun.base.dtype import LARGEST_FLOAT32
from mxrun.base.errors import InternalError
from mxrun.base.keywords import OPERATOR_NAME, is_operator_name
from mxrun.base.params import Float32, Parameters
from mxrun.operator.family import OperatorFamily
from mxrun.operator.map_kernel import MapImplementation
from mxrun.operator.property import GradientKind, ResourceRequest
from mxrun.operator.register import OPERATORS, Foreign, Implementation, implement, register
from mxrun.operator.simple_entry import (
    FULL,
    EnvArguments,
    Formula,
    Function,
    Gradient,
    Inplace,
    Reads,
    ResourceFunction,
    ShapeFunction,
    SimpleEntry,
    entry_error,
    formula_of,
    reads_inputs,
    reads_out_grad,
    reads_output,
)
from mxrun.operator.simple_property import SimpleProperty, select_inputs

__all__ = [
    "EnvArguments",
    "Gradient",
    "Inplace",
    "MapImplementation",
    "NoParameters",
    "SimpleEntry",
    "SimpleProperty",
    "reads_inputs",
    "reads_out_grad",
    "reads_output",
    "register_entry",
    "simple_entry",
    "simple_operator",
]

F = TypeVar("F", bound=Function)
AnyGradient = Gradient | GradientKind
AnyResource = ResourceRequest | Sequence[ResourceRequest] | ResourceFunction

# MXNet's input names by number of inputs.
_ARGUMENTS = {1: ("data",), 2: ("lhs", "rhs")}


class NoParameters(Parameters):
    """Parameters of an operator that has none."""


def simple_operator(
    name: str,
    *aliases: str,
    gradient: AnyGradient = GradientKind.NONE,
    inplace: Inplace | Sequence[Inplace] | None = None,
    shape: ShapeFunction | None = None,
    scalar: float | None = None,
    parameters: type[Parameters] | None = None,
    resource: AnyResource = (),
    description: str = "",
    nonstandard_gradient: str = "",
    family: OperatorFamily = OperatorFamily.ELEMENTWISE,
    foreign: Foreign | None = None,
) -> Callable[[F], F]:
    """Decorator: register a function as the operator `name`; the function itself is unchanged.

    gradient: computation and inputs of backward: `reads_out_grad(f)`, `reads_output(f)` or
        `reads_inputs(f)` with a function (or GradientKind.ZERO) for each input, or
        GradientKind.ZERO for an operator whose gradient is zero everywhere; by default none.
    inplace: tensors that may share memory; by default all safe pairs for maps, else none.
    shape: function of the parameters and the shape of each input that returns the output's shape;
        by default all shapes are equal. Not available for maps.
    scalar: default of the only parameter `scalar`; parameters: class of parameters. Not both.
    resource: resources that both functions find in `env.call`, in order: one request, several,
        or a function of the inputs' specs that returns them.
    description: the operator's documentation; by default the function's docstring.
    nonstandard_gradient: sentence that gives the gradient if it deliberately differs from the
        derivative.
    family: gives the operator's colour in drawings.
    foreign: its names in other frameworks, as `register` has them.

    Raises UserError, at the function's line, for an invalid simple operator, and InternalError if
    the name is taken.
    """

    if callable(name):
        expected = '@simple_operator("NAME") above the function'
        raise entry_error(name, "simple_operator has no name", expected, "@simple_operator")

    def add(function: F) -> F:
        kind = _parameter_type(function, scalar, parameters)
        entry = simple_entry(
            function,
            kind,
            gradient=gradient,
            inplace=inplace,
            shape=shape,
            resource=resource,
        )
        if scalar is not None and not entry.reads_parameter("scalar"):
            hint = "add it after the tensors: def f(x, scalar)"
            raise entry_error(function, f"no function of {name} takes its scalar", hint=hint)
        document = description or docstring(function)
        if not document and flags.docstrings():
            hint = "begin the function with a docstring: the formula, what backward reads"
            raise entry_error(function, f"{name} has no description", hint=hint)
        register_entry(
            name,
            *aliases,
            entry=entry,
            parameters=kind,
            description=document,
            nonstandard_gradient=nonstandard_gradient,
            family=family,
            foreign=foreign,
        )
        return function

    return add


def register_entry(
    name: str,
    *aliases: str,
    entry: SimpleEntry,
    parameters: type[Parameters] = NoParameters,
    description: str,
    nonstandard_gradient: str = "",
    family: OperatorFamily = OperatorFamily.ELEMENTWISE,
    foreign: Foreign | None = None,
    base: type[SimpleProperty[Any]] = SimpleProperty,
    loops: type[Implementation] = MapImplementation,
) -> None:
    """Register an entry as the operator `name`, a subclass of `base`; `loops` implement maps.

    Raises UserError for an invalid name, and InternalError if it is taken.
    """
    function = entry.forward.function
    for key in (name, *aliases):
        if not is_operator_name(key):
            problem = f"{function.__name__} cannot be registered under that name"
            raise entry_error(function, problem, OPERATOR_NAME, repr(key))
        if OPERATORS.is_taken(key):
            raise InternalError(str(entry_error(function, f"operator {key!r} is registered twice")))
    members: dict[str, Any] = {
        "__doc__": description,
        "__module__": function.__module__,
        "type_string": name,
        "parameter_type": parameters,
        "entry": entry,
        "nonstandard_gradient": nonstandard_gradient,
        "family": family,
    }
    register(name, *aliases, foreign=foreign)(type(name, (base,), members))
    if entry.forward.is_map:
        implement(name, backend="jit")(loops)


def simple_entry(
    function: Function,
    parameters: type[Parameters] = NoParameters,
    *,
    gradient: AnyGradient = GradientKind.NONE,
    inplace: Inplace | Sequence[Inplace] | None = None,
    shape: ShapeFunction | None = None,
    resource: AnyResource = (),
) -> SimpleEntry:
    """Return the entry of a simple operator, for a property that selects among several entries.

    Raises UserError, at the function's line, for an invalid simple operator.
    """
    owner = getattr(function, "__name__", type(function).__name__)
    forward = formula_of(function, parameters, None, owner)
    inputs = forward.tensors
    if not 1 <= len(inputs) <= 2:
        problem = f"{owner} has {len(inputs)} inputs"
        raise entry_error(function, problem, "one or two tensors", list(inputs), FULL)
    if shape is not None:
        _require_shape_function(function, forward, shape)
    if forward.is_map and resource != ():
        hint = "a function on arrays, def f(env, ...), may request resources"
        raise entry_error(function, f"{owner} is a map, which needs no resources", hint=hint)
    reads, gradients = _gradients(function, forward, parameters, gradient)
    return SimpleEntry(
        _ARGUMENTS[len(inputs)] if forward.is_map else inputs,
        forward,
        reads,
        gradients,
        _inplace(function, forward, inplace),
        shape,
        _requests(function, resource),
    )


def _require_shape_function(function: Function, forward: Formula, shape: object) -> None:
    """Raise UserError, at the function's line, if `shape` is invalid or the function is a map."""
    owner = function.__name__
    if forward.is_map:
        hint = "a function on arrays, def f(env, ...), may have another shape"
        raise entry_error(function, f"{owner} is a map, which keeps the shape", hint=hint)
    expected = f"a function of the parameters and the shape of each of {', '.join(forward.tensors)}"
    if not callable(shape):
        raise entry_error(function, "shape is not a function", expected, repr(shape))
    try:
        inspect.signature(shape).bind(None, *forward.tensors)
    except TypeError as error:
        problem = f"the shape function of {owner} has other arguments"
        raise entry_error(function, problem, expected, str(error)) from error


def _requests(
    function: Function, resource: AnyResource
) -> tuple[ResourceRequest, ...] | ResourceFunction:
    if callable(resource):
        return resource
    requests = resource if isinstance(resource, (tuple, list)) else (resource,)
    if not all(isinstance(request, ResourceRequest) for request in requests):
        expected = "a ResourceRequest, several, or a function of the inputs' specs"
        raise entry_error(function, "resource is not a ResourceRequest", expected, repr(resource))
    return tuple(requests)


def _parameter_type(function: Function, scalar: object, parameters: object) -> type[Parameters]:
    if parameters is not None and not (
        isinstance(parameters, type) and issubclass(parameters, Parameters)
    ):
        expected = "a class of mxrun.base.params.Parameters"
        raise entry_error(
            function, "parameters is not a class of Parameters", expected, repr(parameters)
        )
    if scalar is None:
        return parameters or NoParameters
    if parameters is not None:
        hint = "make the scalar one of the parameters"
        raise entry_error(
            function,
            f"{function.__name__} has a scalar and keyword parameters",
            "one of both",
            hint=hint,
        )
    if not _is_finite(scalar):
        problem = f"scalar cannot be {scalar!r} by default"
        raise entry_error(function, problem, "a finite number that float32 holds", repr(scalar))
    field = Field(default=scalar, description="Scalar operand.")
    document = "Parameter of an operator of a tensor and a number."
    return create_model(
        "ScalarParameters", __base__=Parameters, __doc__=document, scalar=(Float32, field)
    )


def _is_finite(number: object) -> bool:
    """Return whether the object is a number, not a bool, in float32's range."""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return False
    return abs(number) <= LARGEST_FLOAT32


def _gradients(
    function: Function, forward: Formula, parameters: type[Parameters], gradient: AnyGradient
) -> tuple[Reads, tuple[Formula | GradientKind, ...]]:
    """Return which tensors the gradients read, and a formula for each gradient."""
    inputs = forward.tensors
    readers = "reads_out_grad(f), reads_output(f) or reads_inputs(f)"
    if not isinstance(gradient, (Gradient, GradientKind)):
        problem = "gradient does not declare what its functions read"
        got = type(gradient).__name__
        raise entry_error(function, problem, f"{readers}, or GradientKind.ZERO", got)
    if isinstance(gradient, GradientKind):
        if gradient is GradientKind.COMPUTES:
            raise entry_error(function, "a computed gradient needs a function", hint=readers)
        return Reads.OUT_GRAD, (gradient,) * len(inputs)
    if len(gradient.sides) != len(inputs):
        expected = f"a gradient for each of {', '.join(inputs)}"
        problem = f"{function.__name__} has {len(gradient.sides)} gradients"
        raise entry_error(function, problem, expected, hint="GradientKind.ZERO for one without")
    tensors = select_inputs(gradient.reads, "out_grad", inputs, "output")
    formulas = tuple(
        side
        if isinstance(side, GradientKind)
        else formula_of(side, parameters, tensors, f"the gradient of {name}")
        for name, side in zip(inputs, gradient.sides, strict=True)
    )
    for formula in formulas:
        if isinstance(formula, Formula) and formula.is_map is not forward.is_map:
            problem = f"{function.__name__} and its gradient differ in their first argument"
            expected = "`env` as the first argument of all functions on arrays, or of none"
            raise entry_error(formula.function, problem, expected)
    return gradient.reads, formulas


def _inplace(
    function: Function, forward: Formula, inplace: Inplace | Sequence[Inplace] | None
) -> tuple[Inplace, ...] | None:
    """Return the kinds as a tuple; raises UserError for a kind of another number of inputs."""
    if inplace is None:
        return None if forward.is_map else ()
    kinds = tuple(inplace) if isinstance(inplace, (tuple, list)) else (inplace,)
    unary = (Inplace.NONE, Inplace.IN_OUT, Inplace.OUT_IN)
    binary = (Inplace.NONE, Inplace.LHS_OUT, Inplace.OUT_LHS)
    allowed = unary if len(forward.tensors) == 1 else binary
    for kind in kinds:
        if kind not in allowed:
            problem = f"{function.__name__} of {', '.join(forward.tensors)} cannot be {kind}"
            raise entry_error(function, problem, " or ".join(map(str, allowed)), str(kind))
    return kinds
