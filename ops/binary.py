"""Binary maps: common definitions of the elementwise, broadcast and scalar operators.

Each definition is a scalar function and its gradients with respect to both operands. The results
equal MXNet 1.9.1's, also for undefined operands, except for gradients of powers: where MXNet
multiplies 0 by infinity, they are the limit, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import Field

from mxrun.base.dataclass import dataclass
from mxrun.base.once import cached_property
from mxrun.base.params import Float32, Parameters
from mxrun.codegen.scalar_value import ScalarValue
from mxrun.operator import scalar
from mxrun.operator.property import GradientKind
from mxrun.operator.simple import SimpleEntry, reads_inputs, simple_entry

# Scalar functions run on numbers, arrays and symbolic values.
Scalar = Any
Function = Callable[..., Any]


class ScalarParameters(Parameters):
    """Scalar operand of an operator of a tensor and a number."""

    scalar: Float32 = Field(
        default=1.0,
        description="Scalar operand; truncated if data are integers.",
        examples=[0.5],
    )
    is_int: bool = Field(
        default=True,
        description="Accepted for MXNet's models; has no effect.",
    )


@dataclass(frozen=True)
class Definition:
    """output = function(x, y) for every pair of elements.

    text: the formula, with the placeholders {x} and {y}. gradients: functions of (the output's
    gradient, x, y) for x and for y; empty if both are zero everywhere.
    """

    text: str
    function: Function
    gradients: tuple[Function, ...] = ()

    @cached_property
    def entry(self) -> SimpleEntry:
        """Map of two tensors."""
        kind = reads_inputs(*self.gradients) if self.gradients else GradientKind.ZERO
        return simple_entry(self.function, gradient=kind)

    def with_number(self, number: str) -> SimpleEntry:
        """Return the map of a tensor and a scalar; `number` is the scalar's operand, x or y."""
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
        """Return the documentation of an operator with this entry and operands `x` and `y`."""
        output = f"output = {self.text.format(x=x, y=y)}{where}"
        if not self.gradients:
            return f"{output}. The gradients are zero everywhere."
        reads = "the output's gradient only"
        if any(read for each in entry.computed for read in each.reads[1:]):
            reads = "both sides" if len(entry.arguments) > 1 else "data"
            reads = f"the output's gradient and {reads}"
        return f"{output}. Backward reads {reads}."


def _wide(value: Scalar) -> Scalar:
    """Convert a value to float64."""
    if isinstance(value, ScalarValue):
        return value.convert("float64")
    return np.asarray(value, np.float64)


def _narrow(value: Scalar, like: Scalar) -> Scalar:
    """Convert a float64 value to the dtype of `like`."""
    return value.convert(like.dtype) if isinstance(value, ScalarValue) else value.astype(like.dtype)


def saturated(number: Scalar, like: Scalar) -> Scalar:
    """Clamp a number to the range of `like`'s dtype if that is an integer type."""
    kind = np.dtype(like.dtype) if isinstance(like, ScalarValue) else np.result_type(like)
    if kind.kind == "f":
        return number
    limits = np.iinfo(kind)
    return scalar.minimum(scalar.maximum(number, int(limits.min)), int(limits.max))


def quotient(x: Scalar, y: Scalar) -> Scalar:
    """Return x / y; for integers truncated towards zero, and 0 where y is 0."""
    if isinstance(x, ScalarValue) or isinstance(y, ScalarValue) or np.result_type(x, y).kind == "f":
        return x / y
    below, rest = np.divmod(x, y)
    return below + ((rest != 0) & ((x < 0) != (y < 0)))


def base_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """Return gradient * d x^y / dx = gradient * y * x^(y - 1), which for y = 0 is 0 for any x."""
    return scalar.where(y == 0, 0.0, gradient * (scalar.pow(x, y - 1.0) * y))


def exponent_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """Return gradient * d x^y / dy = gradient * x^y * log(x); NaN for negative x.

    0 for x = 0 and y >= 0: the limit for y > 0.
    """
    is_limit = scalar.logical_and(x == 0, y >= 0)
    return gradient * scalar.where(is_limit, 0.0, scalar.pow(x, y) * scalar.log(x))


def hypot(x: Scalar, y: Scalar) -> Scalar:
    """Return sqrt(x^2 + y^2), with squares in float64, which cannot overflow for float32 operands.

    The result is infinite if either side is infinite, even if the other is NaN.
    """
    a, b = _wide(x), _wide(y)
    infinite = scalar.logical_or(scalar.isinf(a), scalar.isinf(b))
    return scalar.where(infinite, math.inf, scalar.sqrt(a * a + b * b))


def hypot_gradient(gradient: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """Return gradient * d hypot / dx = gradient * x / hypot; NaN where both sides are 0."""
    return gradient * _narrow(_wide(x) / hypot(x, y), gradient)


BINARY = {
    "add": Definition("{x} + {y}", lambda x, y: x + y, (lambda g, x, y: g, lambda g, x, y: g)),
    "sub": Definition("{x} - {y}", lambda x, y: x - y, (lambda g, x, y: g, lambda g, x, y: -g)),
    "mul": Definition(
        "{x} * {y}", lambda x, y: x * y, (lambda g, x, y: g * y, lambda g, x, y: g * x)
    ),
    "div": Definition(
        # The square of a small y would be 0.
        "{x} / {y}",
        quotient,
        (lambda g, x, y: g / y, lambda g, x, y: -g * (x / y / y)),
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
    # x receives the entire gradient where both are equal.
    "maximum": Definition(
        "max({x}, {y})",
        lambda x, y: scalar.maximum(x, saturated(y, x)),
        (
            lambda g, x, y: scalar.where(x >= y, g, 0.0),
            lambda g, x, y: scalar.where(x < y, g, 0.0),
        ),
    ),
    "minimum": Definition(
        "min({x}, {y})",
        lambda x, y: scalar.minimum(x, saturated(y, x)),
        (
            lambda g, x, y: scalar.where(x <= y, g, 0.0),
            lambda g, x, y: scalar.where(x > y, g, 0.0),
        ),
    ),
    "equal": Definition("1 where {x} = {y}, else 0", lambda x, y: x == y),
    "not_equal": Definition("1 where {x} != {y}, else 0", lambda x, y: x != y),
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
        "1 where exactly one of {x} and {y} is 0, else 0", lambda x, y: scalar.logical_xor(x, y)
    ),
}
