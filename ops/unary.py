"""Unary maths: a table of MXNet 1.9.1's elementwise functions of one tensor.

Each entry is a scalar function and its gradient. The gradient is a function of (out_grad, output)
if the output determines it to full precision, else of (out_grad, data). Where a function is
undefined, the result is MXNet's, which is not always the mathematical limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pydantic import Field

from mxrun.base.params import Float32, Parameters
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.property import GradientKind
from mxrun.operator.simple import (
    Gradient,
    reads_inputs,
    reads_out_grad,
    reads_output,
    simple_operator,
)
from mxrun.ops.activation import relu, relu_gradient

# Scalar functions run on numbers, arrays and symbolic values.
Scalar = Any
Function = Callable[..., Scalar]

ZERO = GradientKind.ZERO


def sign_of(x: Scalar) -> Scalar:
    """Return -1, 0 or 1; 0 for NaN, as in MXNet."""
    return scalar.where(x > 0, 1.0, scalar.where(x < 0, -1.0, 0.0))


def half_down(x: Scalar) -> Scalar:
    """Round to the nearest integer; halves are rounded down."""
    below, above = scalar.floor(x), scalar.ceil(x)
    return scalar.where(x - below <= above - x, below, above)


def psi(x: Scalar) -> Scalar:
    """Return digamma(x), with MXNet's infinity at 0, -1, -2, ..."""
    pole = scalar.logical_and(x <= 0, scalar.floor(x) == x)
    return scalar.where(pole, math.inf, scalar.digamma(x))


_OUTPUT = "Backward reads the output and its gradient."
_DATA = "Backward reads data and the output's gradient."
_OUT_GRAD = "Backward reads the output's gradient only."
_ZERO = "The gradient is zero everywhere."

# Functions whose gradient is a function of (out_grad, output).
_OF_OUTPUT: dict[str, tuple[str, Function, Function]] = {
    "sigmoid": (
        "1 / (1 + exp(-data))",
        lambda x: scalar.sigmoid(x),
        lambda g, y: g * (y * (1 - y)),
    ),
    "relu": ("max(data, 0)", relu, relu_gradient),
    "tanh": ("tanh(data)", lambda x: scalar.tanh(x), lambda g, y: g * (1 - y * y)),
    "exp": ("e^data", lambda x: scalar.exp(x), lambda g, y: g * y),
    "sqrt": ("data^(1/2); NaN below 0", lambda x: scalar.sqrt(x), lambda g, y: g * (0.5 / y)),
    "rsqrt": (
        "data^(-1/2); NaN below 0",
        lambda x: scalar.rsqrt(x),
        lambda g, y: g * (-0.5 * (y * y * scalar.abs(y))),
    ),
    "cbrt": ("the real cube root of data", lambda x: scalar.cbrt(x), lambda g, y: g / (3 * y * y)),
    "rcbrt": (
        "1 / cbrt(data)",
        lambda x: scalar.rcbrt(x),
        lambda g, y: g * ((y * y) * (y * y) * (-1 / 3)),
    ),
    "reciprocal": ("1 / data", lambda x: 1 / x, lambda g, y: -g * (y * y)),
    "tan": ("tan(data), data in radians", lambda x: scalar.tan(x), lambda g, y: g * (1 + y * y)),
    "erfinv": (
        "the inverse of erf; NaN outside of [-1, 1]",
        lambda x: scalar.erfinv(x),
        lambda g, y: g * (math.sqrt(math.pi) / 2 * scalar.exp(y * y)),
    ),
}

# Functions whose gradient is a function of (out_grad, data).
_OF_DATA: dict[str, tuple[str, Function, Function]] = {
    "abs": ("|data|, whose gradient at 0 is 0", lambda x: abs(x), lambda g, x: g * sign_of(x)),
    "square": ("data^2", lambda x: x * x, lambda g, x: g * (2 * x)),
    "log": ("the natural logarithm of data", lambda x: scalar.log(x), lambda g, x: g / x),
    "log2": ("log2(data)", lambda x: scalar.log2(x), lambda g, x: g / (x * math.log(2))),
    "log10": ("log10(data)", lambda x: scalar.log10(x), lambda g, x: g / (x * math.log(10))),
    "log1p": (
        "log(1 + data), exact near 0",
        lambda x: scalar.log1p(x),
        lambda g, x: g / (1 + x),
    ),
    "expm1": (
        "e^data - 1, exact near 0",
        lambda x: scalar.expm1(x),
        lambda g, x: g * scalar.exp(x),
    ),
    "sin": ("sin(data), data in radians", lambda x: scalar.sin(x), lambda g, x: g * scalar.cos(x)),
    "cos": ("cos(data), data in radians", lambda x: scalar.cos(x), lambda g, x: -g * scalar.sin(x)),
    "arcsin": (
        "arcsin(data); NaN outside of [-1, 1]",
        lambda x: scalar.arcsin(x),
        lambda g, x: g / scalar.sqrt((1 - x) * (1 + x)),
    ),
    "arccos": (
        "arccos(data); NaN outside of [-1, 1]",
        lambda x: scalar.arccos(x),
        lambda g, x: -g / scalar.sqrt((1 - x) * (1 + x)),
    ),
    "arctan": ("arctan(data)", lambda x: scalar.arctan(x), lambda g, x: g / (1 + x * x)),
    "sinh": ("sinh(data)", lambda x: scalar.sinh(x), lambda g, x: g * scalar.cosh(x)),
    "cosh": ("cosh(data)", lambda x: scalar.cosh(x), lambda g, x: g * scalar.sinh(x)),
    "arcsinh": (
        "arcsinh(data)",
        lambda x: scalar.arcsinh(x),
        lambda g, x: g / scalar.sqrt(x * x + 1),
    ),
    "arccosh": (
        "arccosh(data); NaN below 1",
        lambda x: scalar.arccosh(x),
        # Adding 0 turns the product -0 at -1 into +0, where MXNet has +inf.
        lambda g, x: g / scalar.sqrt((x - 1) * (x + 1) + 0.0),
    ),
    "arctanh": (
        "arctanh(data); NaN outside of [-1, 1]",
        lambda x: scalar.arctanh(x),
        lambda g, x: g / ((1 - x) * (1 + x)),
    ),
    "softsign": (
        "data / (1 + |data|)",
        lambda x: x / (1 + abs(x)),
        lambda g, x: g / ((1 + abs(x)) * (1 + abs(x))),
    ),
    "erf": (
        "the error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to data",
        lambda x: scalar.erf(x),
        lambda g, x: g * (2 / math.sqrt(math.pi) * scalar.exp(-x * x)),
    ),
    "gamma": (
        "the gamma function of data; NaN at -1, -2, ...",
        lambda x: scalar.gamma(x),
        lambda g, x: g * (scalar.gamma(x) * psi(x)),
    ),
    "gammaln": (
        "log |gamma(data)|; infinite at 0, -1, -2, ...",
        lambda x: scalar.gammaln(x),
        lambda g, x: g * psi(x),
    ),
}

# Functions whose gradient is a function of (out_grad).
_OF_OUT_GRAD: dict[str, tuple[str, Function, Function]] = {
    "_copy": ("data", lambda x: x, lambda g: g),
    "negative": ("-data", lambda x: -x, lambda g: -g),
    "degrees": (
        "data * 180 / pi",
        lambda x: x * (180 / math.pi),
        lambda g: g * (180 / math.pi),
    ),
    "radians": (
        "data * pi / 180",
        lambda x: x * (math.pi / 180),
        lambda g: g * (math.pi / 180),
    ),
}

# Functions whose gradient is zero.
_STEPS: dict[str, tuple[str, Function]] = {
    "sign": ("-1, 0 or 1 with the sign of data; 0 of NaN", sign_of),
    "round": (
        "data rounded to the nearest integer, halves away from 0",
        lambda x: scalar.round(x),
    ),
    "rint": ("data rounded to the nearest integer, halves down", half_down),
    "ceil": ("the smallest integer >= data", lambda x: scalar.ceil(x)),
    "floor": ("the largest integer <= data", lambda x: scalar.floor(x)),
    "trunc": ("data rounded towards 0", lambda x: scalar.trunc(x)),
    "fix": ("data rounded towards 0", lambda x: scalar.fix(x)),
    "logical_not": ("1 where data is 0, else 0", lambda x: scalar.logical_not(x)),
    "zeros_like": ("0", lambda x: 0.0),
    "ones_like": ("1", lambda x: 1.0),
}

_ALIASES = {"_copy": ("identity",)}
# In other frameworks.
_FOREIGN = {"negative": "neg"}
# Also functions of Activation, or used in its place.
_ACTIVATIONS = frozenset({"relu", "sigmoid", "tanh", "softsign"})


class HardSigmoidParameters(Parameters):
    """Slope and offset of hard_sigmoid between 0 and 1."""

    alpha: Float32 = Field(default=0.2, description="Slope of the line.")
    beta: Float32 = Field(default=0.5, description="Value of the line at data = 0.")


def _register() -> None:
    """Register all functions of the tables as operators."""
    for name, (text, function, gradient) in _OF_OUTPUT.items():
        _add(name, text, _OUTPUT, function, reads_output(gradient))
    for name, (text, function, gradient) in _OF_DATA.items():
        _add(name, text, _DATA, function, reads_inputs(gradient))
    for name, (text, function, gradient) in _OF_OUT_GRAD.items():
        _add(name, text, _OUT_GRAD, function, reads_out_grad(gradient))
    for name, (text, function) in _STEPS.items():
        _add(name, text, _ZERO, function, ZERO)


def _add(
    name: str, text: str, backward: str, function: Function, gradient: Gradient | GradientKind
) -> None:
    simple_operator(
        name,
        *_ALIASES.get(name, ()),
        gradient=gradient,
        foreign={name: _FOREIGN.get(name, "")},
        description=f"output = {text}, elementwise. {backward}",
        family=OperatorFamily.ACTIVATION if name in _ACTIVATIONS else OperatorFamily.ELEMENTWISE,
    )(function)


_register()


def hard_sigmoid_gradient(g: Scalar, y: Scalar, alpha: Scalar) -> Scalar:
    """Return g * alpha where 0 < y < 1, else 0."""
    return scalar.where(scalar.logical_and(y > 0, y < 1), g * alpha, 0.0)


@simple_operator(
    "hard_sigmoid",
    gradient=reads_output(hard_sigmoid_gradient),
    parameters=HardSigmoidParameters,
    family=OperatorFamily.ACTIVATION,
)
def hard_sigmoid(x: Scalar, alpha: Scalar, beta: Scalar) -> Scalar:
    """output = max(0, min(1, alpha * data + beta)). Backward reads the output and its gradient."""
    return scalar.maximum(0.0, scalar.minimum(1.0, alpha * x + beta))
