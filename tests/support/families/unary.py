"""Unary maths: cases and formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import AGREEMENT, Reference, Row, Values, rows

Array = npt.NDArray[Any]
Number = Callable[[float], float]


def drawn(low: float, high: float, *first: float) -> Values:
    """Return the required values followed by uniform numbers."""

    def values(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        array = random.uniform(low, high, shape)
        chosen = np.array(first)[: array.size]
        array.flat[: chosen.size] = chosen
        return array.astype(dtype)

    return values


def each(function: Number) -> Reference:
    """Compute with Python's math, one element at a time."""

    def reference(p: Any, inputs: list[Array]) -> list[Array]:
        values = [function(float(x)) for x in inputs[0].flat]
        return [np.array(values, inputs[0].dtype).reshape(inputs[0].shape)]

    return reference


def erfinv(y: float) -> float:
    """Newton's method on erf, from the left of the root, where erf is concave."""
    magnitude, x = abs(y), 0.0
    for _ in range(200):
        left = math.erf(x) - magnitude if x < 1 else (1 - magnitude) - math.erfc(x)
        step = left * math.sqrt(math.pi) / 2 * math.exp(x * x)
        x -= step
        if abs(step) < 1e-15 * x:
            break
    return math.copysign(x, y)


def half_down(x: float) -> float:
    """Round half towards negative infinity."""
    return float(math.ceil(x - 0.5))


def half_up(x: float) -> float:
    """Round half away from 0."""
    return math.copysign(math.floor(abs(x) + 0.5), x)


def hard_sigmoid(p: Any, inputs: list[Array]) -> list[Array]:
    """A line cut off at 0 and 1."""
    alpha, beta = (inputs[0].dtype.type(number) for number in (p.alpha, p.beta))
    return [np.clip(inputs[0] * alpha + beta, 0, 1)]


NORMAL = drawn(-3, 3)
STEPS = drawn(-4, 4, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0, 1, -2, 0.49999, -1.75)
KINKED = drawn(-3, 3, 0.01, -0.01, 0.25)
POSITIVE = drawn(0.05, 20, 1, 0.01, 100)
WITHIN = drawn(-0.9, 0.9, 0, 0.97, -0.97, 0.01)
AWAY = drawn(0.3, 4, 0.05, -0.05, -2, -0.7, 30)
WIDE = drawn(-8, 8, 0, 12, -12, 0.001)

# The formula, and values near the difficult points of the function.
FUNCTIONS: dict[str, tuple[Number, Values]] = {
    "_copy": (lambda x: x, NORMAL),
    "abs": (lambda x: x if x > 0 else -x, KINKED),
    "arccos": (lambda x: math.pi / 2 - math.asin(x), WITHIN),
    "arccosh": (
        lambda x: math.log(x + math.sqrt(x - 1) * math.sqrt(x + 1)),
        drawn(1.2, 9, 1.05, 100),
    ),
    "arcsin": (lambda x: math.atan2(x, math.sqrt((1 - x) * (1 + x))), WITHIN),
    "arcsinh": (
        lambda x: math.copysign(math.log(abs(x) + math.hypot(x, 1)), x),
        drawn(-5, 5, 0, 0.5, -30),
    ),
    "arctan": (lambda x: math.atan2(x, 1), WIDE),
    "arctanh": (lambda x: 0.5 * (math.log1p(x) - math.log1p(-x)), WITHIN),
    "cbrt": (lambda x: math.copysign(abs(x) ** (1 / 3), x), AWAY),
    "ceil": (lambda x: float(math.ceil(x)), STEPS),
    "cos": (lambda x: math.sin(x + math.pi / 2), WIDE),
    "cosh": (lambda x: (math.exp(x) + math.exp(-x)) / 2, drawn(-4, 4, 0, 6)),
    "degrees": (math.degrees, WIDE),
    "erf": (lambda x: 1 - math.erfc(x), drawn(-2.5, 2.5, 0, 0.01)),
    "erfinv": (erfinv, drawn(-0.9, 0.9, 0, 0.97, -0.97)),
    "exp": (lambda x: math.e**x, drawn(-5, 5, 0, 0.001, -10)),
    "expm1": (lambda x: 2 * math.sinh(x / 2) * math.exp(x / 2), drawn(-4, 4, 0, 0.001, -10)),
    "fix": (lambda x: float(int(x)), STEPS),
    "floor": (lambda x: float(math.floor(x)), STEPS),
    "gamma": (math.gamma, drawn(0.4, 4, 0.1, 6, -0.5, -1.5, -2.25)),
    "gammaln": (lambda x: math.log(abs(math.gamma(x))), drawn(0.4, 4, 0.1, 20, -0.5, -1.6)),
    "log": (lambda x: math.log2(x) * math.log(2), POSITIVE),
    "log10": (math.log10, POSITIVE),
    "log1p": (math.log1p, drawn(-0.8, 8, 0, 0.001, -0.95, 50)),
    "log2": (math.log2, POSITIVE),
    "logical_not": (lambda x: float(not x), drawn(-1, 1, 0, -0.0, 1, 1e-30)),
    "negative": (lambda x: 0 - x, NORMAL),
    "ones_like": (lambda x: 1.0, NORMAL),
    "radians": (math.radians, drawn(-400, 400, 0, 180)),
    "rcbrt": (lambda x: math.copysign(abs(x) ** (-1 / 3), x), AWAY),
    "reciprocal": (lambda x: x**-1, AWAY),
    "relu": (lambda x: x if x > 0 else 0.0, KINKED),
    "rint": (half_down, STEPS),
    "round": (half_up, STEPS),
    "rsqrt": (lambda x: x**-0.5, POSITIVE),
    "sigmoid": (lambda x: 0.5 * (1 + math.tanh(x / 2)), WIDE),
    "sign": (lambda x: float((x > 0) - (x < 0)), STEPS),
    "sin": (lambda x: math.cos(x - math.pi / 2), WIDE),
    "sinh": (lambda x: math.expm1(2 * x) / (2 * math.exp(x)), drawn(-4, 4, 0, 6, 0.001)),
    "softsign": (lambda x: x / (1 + x if x > 0 else 1 - x), drawn(-3, 3, 0.01, 30, -200)),
    "sqrt": (lambda x: x**0.5, POSITIVE),
    "square": (lambda x: x**2, NORMAL),
    "tan": (lambda x: math.sin(x) / math.cos(x), drawn(-1.2, 1.2, 0, 1.4, -4)),
    "tanh": (lambda x: 1 - 2 / (math.exp(2 * x) + 1), drawn(-3, 3, 0, 0.01, 6)),
    "trunc": (math.trunc, STEPS),
    "zeros_like": (lambda x: 0.0, NORMAL),
}

# Tolerances against other libraries where float32 itself is less precise: sigmoid's gradient has
# the factor 1 - output, of which few digits are left near 1; MXNet computes gammaln's with its own
# digamma, a sum with alternating signs near its root.
AGREEMENTS = {"sigmoid": 2e-5, "gammaln": 2e-5}

SHAPES = ((11,), (3, 4), (1, 1), (2, 3, 4), (2, 3, 2, 2), (3, 12001))

ROWS: list[Row] = [
    *(
        row
        for name, (_, values) in FUNCTIONS.items()
        for row in rows(
            name,
            *(({}, shape) for shape in SHAPES),
            values={"data": values},
            agreement=AGREEMENTS.get(name, AGREEMENT),
        )
    ),
    *rows(
        "hard_sigmoid",
        *(
            (parameters, shape)
            for parameters, shape in zip(
                ({}, {"alpha": 0.5}, {"alpha": -0.4, "beta": 0.25}, {"beta": 0.0}, {}, {}),
                SHAPES,
                strict=True,
            )
        ),
        values={"data": drawn(-3, 3, 9, -9)},
    ),
]

REFERENCES: dict[str, Reference] = {
    **{name: each(function) for name, (function, _) in FUNCTIONS.items()},
    "hard_sigmoid": hard_sigmoid,
}
