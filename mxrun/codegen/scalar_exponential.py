"""Exponential and hyperbolic functions of float64 numbers.

They are straight-line code without calls, with errors of about two units in the last place. The
polynomials interpolate at Chebyshev nodes, with errors of less than 2^-57 of the result.
"""

from __future__ import annotations

import math

from mxrun.codegen.scalar_instructions import (
    at_least,
    at_most,
    magnitude,
    multiply_add,
    polynomial,
    select,
)
from mxrun.codegen.scalar_parts import (
    LN2_HIGH,
    LN2_LOW,
    ROUNDING_SHIFT,
    TINY,
    odd,
    power_of_two,
    scaled,
)
from mxrun.codegen.scalar_value import Number, ScalarValue

# (e^r - 1 - r - r^2 / 2) / r^3 for |r| <= log(2) / 2.
EXPM1 = (
    0.16666666666666669,
    0.041666666666666664,
    0.008333333333330065,
    0.0013888888888886554,
    0.0001984126986304067,
    2.4801587317135252e-05,
    2.7557268480116333e-06,
    2.7557282983917557e-07,
    2.5100375924709717e-08,
    2.0911229795563617e-09,
)


def exponential(
    x: ScalarValue, rest: ScalarValue | Number = 0.0
) -> tuple[ScalarValue, ScalarValue]:
    """Return integer k and p with e^(x + rest) = 2^k * (1 + p), for |x| <= 800."""
    k = multiply_add(x, math.log2(math.e), ROUNDING_SHIFT) - ROUNDING_SHIFT
    r = multiply_add(k, -LN2_LOW, multiply_add(k, -LN2_HIGH, x)) + rest
    return k, multiply_add(r * r, multiply_add(r, polynomial(r, EXPM1), 0.5), r)


def exp_of_pair(x: ScalarValue, rest: ScalarValue) -> ScalarValue:
    """Compute e^(x + rest); the rest is not used where the result is beyond the range."""
    within = magnitude(x) < 760.0
    k, power = exponential(at_most(at_least(x, -760.0), 720.0), select(within, rest, 0.0))
    return scaled(power + 1.0, k)


def exp(x: ScalarValue) -> ScalarValue:
    """Compute e^x."""
    k, power = exponential(at_most(at_least(x, -760.0), 720.0))
    return scaled(power + 1.0, k)


def _eighth_of_expm1(x: ScalarValue) -> ScalarValue:
    """Compute (e^x - 1) / 8, which does not overflow, for x from -700 to 711."""
    k, power = exponential(x)
    eighth = power_of_two(k - 3.0)
    return multiply_add(eighth, power, eighth - 0.125)


def expm1(x: ScalarValue) -> ScalarValue:
    """Compute e^x - 1."""
    result = _eighth_of_expm1(at_most(at_least(x, -60.0), 711.0)) * 8.0
    return select(magnitude(x) < TINY, x, result)


def sinh(x: ScalarValue) -> ScalarValue:
    """Compute the hyperbolic sine as (h + h / (h + 1)) / 2 with h = e^|x| - 1."""
    eighth = _eighth_of_expm1(at_most(magnitude(x), 711.0))
    return odd(x, (eighth + eighth / multiply_add(eighth, 8.0, 1.0)) * 4.0)


def cosh(x: ScalarValue) -> ScalarValue:
    """Compute the hyperbolic cosine as (e^|x| + e^-|x|) / 2."""
    eighth = _eighth_of_expm1(at_most(magnitude(x), 711.0)) + 0.125
    return (eighth + 0.015625 / eighth) * 4.0


def tanh(x: ScalarValue) -> ScalarValue:
    """Compute the hyperbolic tangent as h / (h + 2) with h = e^2|x| - 1."""
    eighth = _eighth_of_expm1(at_most(magnitude(x), 22.0) * 2.0)
    return odd(x, eighth / (eighth + 0.25))
