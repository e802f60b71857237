"""Maps of two sides: one definition for the elementwise, the broadcast and the scalar operators.

Each is a scalar function and its gradients by either side. The results are MXNet 1.9.1's, also
where a number has no place in a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field

from mxrun.backend.scalar_value import ScalarValue
from mxrun.base.params import Float32, Parameters
from mxrun.operator import scalar
from mxrun.operator.property import GradientKind
from mxrun.operator.simple import SimpleEntry, reads_inputs, simple_entry

# Scalar functions run on numbers, arrays and values that stand for compiled ones.
Scalar = Any
Function = Callable[..., Any]


class ScalarParameters(Parameters):
    """The number beside the tensor."""

    scalar: Float32 = Field(
        default=1.0,
        description="The number; beside integers its fraction is cut off.",
        examples=[0.5],
    )
    is_int: bool = Field(
        default=True,
        description="Accepted for MXNet's models; has no effect.",
    )


@dataclass(frozen=True)
class Definition:
    """output = function(x, y) of every pair of elements.

    text: the formula with {x} and {y} in it. gradients: functions of (the output's gradient, x, y)
    for x and for y; none where both are zero everywhere.
    """

    text: str
    function: Function
    gradients: tuple[Function, ...] = ()

    @cached_property
    def entry(self) -> SimpleEntry:
        """The map of two tensors."""
        kind = reads_inputs(*self.gradients) if self.gradients else GradientKind.ZERO
        return simple_entry(self.function, gradient=kind)

    def with_number(self, number: str) -> SimpleEntry:
        """The map of a tensor and, as `number` (x or y), the parameter `scalar`."""
        function, tensor_first = self.function, number == "y"

        def of_data(data: Scalar, scalar: Scalar) -> Scalar:
            return function(data, scalar) if tensor_first else function(scalar, data)

        if not self.gradients:
            return simple_entry(of_data, ScalarParameters, gradient=GradientKind.ZERO)
        slope = self.gradients[0 if tensor_first else 1]

        def gradient(gradient: Scalar, data: Scalar, scalar: Scalar) -> Scalar:
            sides = (data, scalar) if tensor_first else (scalar, data)
            return slope(gradient, *sides)

        return simple_entry(of_data, ScalarParameters, gradient=reads_inputs(gradient))

    def describe(self, entry: SimpleEntry, x: str, y: str, where: str = "") -> str:
        """The documentation of an operator with that entry, of what the sides are called."""
        output = f"output = {self.text.format(x=x, y=y)}{where}"
        if not self.gradients:
            return f"{output}. The gradients are zero everywhere."
        reads = "the output's gradient only"
        if any(read for each in entry.computed for read in each.reads[1:]):
            reads = "both sides" if len(entry.arguments) > 1 else "data"
            reads = f"the output's gradient and {reads}"
        return f"{output}. Backward reads {reads}."


def _wide(value: Scalar) -> Scalar:
    """The number in float64."""
    if isinstance(value, ScalarValue):
        return value.convert("float64")
    return np.asarray(value, np.float64)


def _narrow(value: Scalar, like: Scalar) -> Scalar:
    """A number of `_wide` in the type of another."""
    return value.convert(like.dtype) if isinstance(value, ScalarValue) else value.astype(like.dtype)


def saturated(number: Scalar, like: Scalar) -> Scalar:
    """A number, or the nearest that the type of `like` has where that is an integer type."""
    kind = np.dtype(like.dtype) if isinstance(like, ScalarValue) else np.result_type(like)
    if kind.kind == "f":
        return number
    limits = np.iinfo(kind)
    return scalar.minimum(scalar.maximum(number, int(limits.min)), int(limits.max))


def quotient(x: Scalar, y: Scalar) -> Scalar:
    """x / y; of integers without its fraction, and 0 where y is 0."""
    if isinstance(x, ScalarValue) or isinstance(y, ScalarValue) or np.result_type(x, y).kind == "f":
        return x / y
    below, rest = np.divmod(x, y)
    return below + ((rest != 0) & ((x < 0) != (y < 0)))


def base_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """d x^y / dx; NaN at 0^0, as 0 * infinity is."""
    return gradient * (scalar.pow(x, y - 1.0) * y)


def exponent_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """d x^y / dy; NaN of a negative x."""
    return gradient * (scalar.pow(x, y) * scalar.log(x))


def hypot(x: Scalar, y: Scalar) -> Scalar:
    """sqrt(x^2 + y^2), whose squares never leave the range of float64; beside NaN too infinite
    where a side is.
    """
    a, b = _wide(x), _wide(y)
    infinite = scalar.logical_or(scalar.isinf(a), scalar.isinf(b))
    return scalar.where(infinite, math.inf, scalar.sqrt(a * a + b * b))


def hypot_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """d hypot / dx = x / hypot; NaN where both are 0."""
    return gradient * _narrow(_wide(x) / hypot(x, y), gradient)


BINARY = {
    "add": Definition("{x} + {y}", lambda x, y: x + y, (lambda g, x, y: g, lambda g, x, y: g)),
    "sub": Definition("{x} - {y}", lambda x, y: x - y, (lambda g, x, y: g, lambda g, x, y: -g)),
    "mul": Definition(
        "{x} * {y}", lambda x, y: x * y, (lambda g, x, y: g * y, lambda g, x, y: g * x)
    ),
    "div": Definition(
        "{x} / {y}", quotient, (lambda g, x, y: g / y, lambda g, x, y: -g * x / (y * y))
    ),
    "power": Definition(
        "{x} ^ {y}", lambda x, y: scalar.pow(x, y), (base_gradient, exponent_gradient)
    ),
    "mod": Definition(
        "{x} - floor({x} / {y}) * {y}, and 0 where {y} is 0",
        lambda x, y: scalar.where(y == 0, 0.0, scalar.mod(x, y)),
        (lambda g, x, y: g, lambda g, x, y: g * -scalar.floor(x / y)),
    ),
    "hypot": Definition(
        "sqrt({x}^2 + {y}^2)",
        hypot,
        (hypot_gradient, lambda g, x, y: hypot_gradient(g, y, x)),
    ),
    # Where both are equal, x has the whole gradient.
    "maximum": Definition(
        "the larger of {x} and {y}",
        lambda x, y: scalar.maximum(x, saturated(y, x)),
        (
            lambda g, x, y: scalar.where(x >= y, g, 0.0),
            lambda g, x, y: scalar.where(x < y, g, 0.0),
        ),
    ),
    "minimum": Definition(
        "the smaller of {x} and {y}",
        lambda x, y: scalar.minimum(x, saturated(y, x)),
        (
            lambda g, x, y: scalar.where(x <= y, g, 0.0),
            lambda g, x, y: scalar.where(x > y, g, 0.0),
        ),
    ),
    "equal": Definition("1 where {x} = {y}, else 0", lambda x, y: x == y),
    "not_equal": Definition("1 where {x} is not {y}, else 0", lambda x, y: x != y),
    "greater": Definition("1 where {x} > {y}, else 0", lambda x, y: x > y),
    "greater_equal": Definition("1 where {x} >= {y}, else 0", lambda x, y: x >= y),
    "lesser": Definition("1 where {x} < {y}, else 0", lambda x, y: x < y),
    "lesser_equal": Definition("1 where {x} <= {y}, else 0", lambda x, y: x <= y),
    "logical_and": Definition(
        "1 where neither {x} nor {y} is 0, else 0", lambda x, y: scalar.logical_and(x, y)
    ),
    "logical_or": Definition(
        "1 where {x} or {y} is not 0, else 0", lambda x, y: scalar.logical_or(x, y)
    ),
    "logical_xor": Definition(
        "1 where one of {x} and {y} is 0, else 0", lambda x, y: scalar.logical_xor(x, y)
    ),
}
