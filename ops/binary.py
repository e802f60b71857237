"""Maps of two sides: one definition for the elementwise, the broadcast and the scalar operators.

Each is a scalar function and the gradient of either side, whose arguments name what they read. The
results are MXNet 1.9.1's, also where a number has no place in a function.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxrun.backend.scalar_value import Value
from mxrun.operator import scalar
from mxrun.operator.register import implement, register
from mxrun.ops.broadcast import BroadcastProperty, CompiledBroadcast
from mxrun.ops.elementwise import (
    GRADIENT,
    LHS,
    RHS,
    Array,
    BinaryMap,
    CompiledElementwise,
    ElementwiseProperty,
    Pullback,
)
from mxrun.ops.scalar import CompiledUnary, ScalarProperty, UnaryMap

# Scalar functions run on numbers, arrays and values that stand for compiled ones.
Scalar = Any
Function = Callable[..., Any]

_PLACES = {"gradient": GRADIENT, "x": LHS, "y": RHS}


@dataclass(frozen=True)
class Definition:
    """output = function(x, y) of every pair of elements.

    text: the formula with {x} and {y} in it. gradients: functions of any of `gradient` (the
    output's), `x` and `y`, for x and for y; none where both are zero everywhere. reversed: the name
    of the operator of a number as x and a tensor as y, which MXNet has of some.
    """

    text: str
    function: Function
    gradients: tuple[Function, ...] = ()
    reversed: str = ""


def _wide(value: Scalar) -> Scalar:
    """The number in float64."""
    if isinstance(value, Value):
        return value.convert("float64")
    return np.asarray(value, np.float64)


def maximum_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """x's where x is not the smaller: it has the whole gradient where both are equal."""
    return scalar.where(x >= y, gradient, 0.0)


def minimum_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """x's where x is not the larger: it has the whole gradient where both are equal."""
    return scalar.where(x <= y, gradient, 0.0)


def where_less(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """The gradient where x < y."""
    return scalar.where(x < y, gradient, 0.0)


def where_greater(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """The gradient where x > y."""
    return scalar.where(x > y, gradient, 0.0)


def base_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """d x^y / dx; NaN at 0^0, as 0 * infinity is."""
    return gradient * (scalar.pow(x, y - 1.0) * y)


def exponent_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """d x^y / dy; NaN of a negative x."""
    return gradient * (scalar.pow(x, y) * scalar.log(x))


def hypot(x: Scalar, y: Scalar) -> Scalar:
    """sqrt(x^2 + y^2), whose squares never leave the range of float64."""
    a, b = _wide(x), _wide(y)
    return scalar.sqrt(a * a + b * b)


def hypot_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """d hypot / dx = x / hypot; NaN where both are 0."""
    return gradient * _narrow(_wide(x) / hypot(x, y), gradient)


def hypot_gradient_of_y(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """d hypot / dy = y / hypot; NaN where both are 0."""
    return hypot_gradient(gradient, y, x)


def _narrow(value: Scalar, like: Scalar) -> Scalar:
    """A number of `_wide` in the type of another."""
    return value.convert(like.dtype) if isinstance(value, Value) else value.astype(like.dtype)


def mod(x: Scalar, y: Scalar) -> Scalar:
    """x - floor(x / y) * y without rounding, of y's sign; 0 where y is 0."""
    return scalar.where(y == 0, 0.0, _remainder(x, y))


def _remainder(x: Scalar, y: Scalar) -> Scalar:
    """NumPy's, and of float32 values the same in float64."""
    if not isinstance(x, Value) and not isinstance(y, Value):
        return np.mod(x, y)
    rest, divisor = _wide(x), _wide(y)
    # A quotient of less than 2^29 is right to the last whole number, and its product with a
    # float32 exact. Ten such steps serve the largest quotient that there is, near 2^277.
    for step in reversed(range(10)):
        part = divisor * 2.0 ** (29 * step)
        whole = scalar.trunc(rest / part)
        rest = rest - scalar.where(whole == 0, 0.0, whole * part)
    across = scalar.logical_xor(rest < 0, divisor < 0)
    moved = scalar.where(scalar.logical_and(rest != 0, across), rest + divisor, rest)
    return _narrow(moved, x if isinstance(x, Value) else y)


def unchanged(gradient: Scalar) -> Scalar:
    """The output's gradient as it is."""
    return gradient


def divisor_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """d mod / dy = -floor(x / y), also where y is 0."""
    return gradient * -scalar.floor(x / y)


DEFINITIONS = {
    "maximum": Definition(
        "the larger of {x} and {y}", scalar.maximum, (maximum_gradient, where_less)
    ),
    "minimum": Definition(
        "the smaller of {x} and {y}", scalar.minimum, (minimum_gradient, where_greater)
    ),
    "power": Definition(
        "{x} ^ {y}", scalar.pow, (base_gradient, exponent_gradient), reversed="rpower"
    ),
    "hypot": Definition("sqrt({x}^2 + {y}^2)", hypot, (hypot_gradient, hypot_gradient_of_y)),
    "mod": Definition(
        "{x} - floor({x} / {y}) * {y}, and 0 where {y} is 0",
        mod,
        (unchanged, divisor_gradient),
        reversed="rmod",
    ),
    "equal": Definition("1 where {x} = {y}, else 0", operator.eq),
    "not_equal": Definition("1 where {x} is not {y}, else 0", operator.ne),
    "greater": Definition("1 where {x} > {y}, else 0", operator.gt),
    "greater_equal": Definition("1 where {x} >= {y}, else 0", operator.ge),
    "lesser": Definition("1 where {x} < {y}, else 0", operator.lt),
    "lesser_equal": Definition("1 where {x} <= {y}, else 0", operator.le),
    "logical_and": Definition("1 where neither {x} nor {y} is 0, else 0", scalar.logical_and),
    "logical_or": Definition("1 where {x} or {y} is not 0, else 0", scalar.logical_or),
    "logical_xor": Definition("1 where one of {x} and {y} is 0, else 0", scalar.logical_xor),
}


def _read(gradient: Function) -> tuple[str, ...]:
    """The names of what a gradient reads."""
    return tuple(inspect.signature(gradient).parameters)


def _pullback(gradient: Function) -> Pullback:
    """The gradient of one side."""
    reads = tuple(_PLACES[name] for name in _read(gradient))

    def formula(*tensors: Array | None) -> Array:
        read = [tensor for tensor in tensors if tensor is not None]
        return scalar.evaluate(gradient, read)

    return Pullback(formula, scalar.compile(gradient), reads)


def _binary(definition: Definition) -> BinaryMap:
    """The map of two tensors."""

    def function(x: Scalar, y: Scalar) -> Scalar:
        return definition.function(x, y)

    return BinaryMap(
        lambda x, y: scalar.evaluate(function, [x, y]),
        scalar.compile(function),
        tuple(_pullback(gradient) for gradient in definition.gradients),
    )


def _unary(definition: Definition, side: int) -> UnaryMap:
    """The map of a tensor as x (side 0) or as y (1), and a number as the other."""
    gradient = definition.gradients[side] if definition.gradients else unchanged
    read = _read(gradient)
    data, number = ("x", "y")[:: 1 - 2 * side]

    def function(tensor: Scalar, number: Scalar) -> Scalar:
        return definition.function(*((tensor, number)[:: 1 - 2 * side]))

    def of_data(out_grad: Scalar, tensor: Scalar, scalar: Scalar) -> Scalar:
        given = {"gradient": out_grad, data: tensor, number: scalar}
        return gradient(*(given[name] for name in read))

    def of_gradient(out_grad: Scalar, scalar: Scalar) -> Scalar:
        return of_data(out_grad, None, scalar)

    reads_data = data in read

    def formula(tensor: Array, number: Any) -> Array:
        return scalar.evaluate(function, [tensor], [number])

    def slope(out_grad: Array, tensor: Array | None, number: Any) -> Array:
        if tensor is None:
            return scalar.evaluate(of_gradient, [out_grad], [number])
        return scalar.evaluate(of_data, [out_grad, tensor], [number])

    return UnaryMap(
        formula,
        slope,
        reads_data,
        scalar.compile(function, parameters=("number",)),
        scalar.compile(of_data if reads_data else of_gradient, parameters=("scalar",)),
        zero=not definition.gradients,
    )


def _define(name: str, alias: str, base: type[Any], rule: object, text: str) -> str:
    """Register the operator `name`, a `base` under a rule; its name."""
    members = {"type_string": name, "rule": rule, "__doc__": text, "__module__": __name__}
    names = (name, alias) if alias else (name,)
    register(*names)(type(name.title().replace("_", ""), (base,), members))
    return name


def _define_scalar(short: str, alias: str, text: str, rule: UnaryMap) -> str:
    """Register the operator of a tensor and a number; its name."""
    return _define(f"_{short}_scalar", f"_{alias}Scalar", ScalarProperty, rule, f"output = {text}")


def _register() -> None:
    """The definitions as operators, each with MXNet's names."""
    elementwise, broadcast, scalars = [], [], []
    for name, one in DEFINITIONS.items():
        rule, title, text = _binary(one), name.title(), one.text.format
        slope = "." if one.gradients else ". The gradients are zero everywhere."
        formula = f"output = {text(x='lhs', y='rhs')}"
        same = f"{formula}, all of one shape{slope}"
        elementwise.append(_define(f"_{name}", f"_{title}", ElementwiseProperty, rule, same))
        repeated = f"{formula}, with broadcasting{slope}"
        broadcast.append(_define(f"broadcast_{name}", "", BroadcastProperty, rule, repeated))
        if name != "power":  # PowerScalar has loops of its own
            formula, alias = text(x="data", y="scalar") + slope, title.replace("_", "")
            scalars.append(_define_scalar(name, alias, formula, _unary(one, 0)))
        if one.reversed:
            formula = text(x="scalar", y="data") + slope
            scalars.append(_define_scalar(one.reversed, f"R{title}", formula, _unary(one, 1)))
    implement(*elementwise, backend="jit")(CompiledElementwise)
    implement(*broadcast, backend="jit")(CompiledBroadcast)
    implement(*scalars, backend="jit")(CompiledUnary)


_register()
