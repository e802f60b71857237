"""Logarithms in float32 arithmetic alone.

Every function is straight-line code without branches, with an error of less than one unit in the
last place. The polynomials are minimax fits of the functions in the comments above them, whose
coefficients are rounded to float32 one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mxrun.codegen.scalar_instructions import (
    copy_sign,
    exponent_and_mantissa,
    fma,
    magnitude,
    polynomial,
    scale,
    select,
)
from mxrun.codegen.scalar_value import ScalarValue

# log(2) and log10(2) in two parts, both positive: products of the first with exponents are exact.
LN2_HIGH, LN2_LOW = 0.69314575195312, 1.4286068203094e-06
LOG10_2_HIGH, LOG10_2_LOW = 0.301025390625, 4.605038981195214e-06
# (log(1 + f) - f + f^2 / 2) / f^3 for f from -1/4 to 1/2.
LOG = (
    0.33333340287208557,
    -0.2500016689300537,
    0.19999565184116364,
    -0.16655169427394867,
    0.14277170598506927,
    -0.12731172144412994,
    0.11695794761180878,
    -0.09087541699409485,
    0.03740246221423149,
)
# log2(1 + f) / f - LOG2_SLOPE and log10(1 + f) / f - LOG10_SLOPE for f from -1/4 to 1/2. The slopes
# have few bits and leave small remainders.
LOG2_SLOPE, LOG10_SLOPE = 1.25, 0.375
LOG2 = (
    0.1926950365304947,
    -0.7213475108146667,
    0.48090043663978577,
    -0.36067602038383484,
    0.28839656710624695,
    -0.2401418536901474,
    0.20895008742809296,
    -0.19014957547187805,
    0.1511126011610031,
    -0.06493661552667618,
)
LOG10 = (
    0.059294480830430984,
    -0.21714724600315094,
    0.1447654813528061,
    -0.10857384651899338,
    0.08681423962116241,
    -0.07229683548212051,
    0.06293293833732605,
    -0.057225361466407776,
    0.04530657082796097,
    -0.019367661327123642,
)


def log(x: ScalarValue) -> ScalarValue:
    """Compute the natural logarithm."""
    k, m = exponent_and_mantissa(x)
    return _log_of(k, m - 1.0)


def log1p(x: ScalarValue) -> ScalarValue:
    """Compute log(1 + x), to full relative accuracy near 0."""
    k, _ = exponent_and_mantissa(x + 1.0)
    inverse = scale(x.constant(1.0), -k)
    # (1 + x) / 2^k - 1 without the rounding of 1 + x.
    result = _log_of(k, fma(x, inverse, inverse - 1.0))
    result = copy_sign(_with_limits(result, k), x)
    return select(x >= -1.0, result, math.nan)


def log2(x: ScalarValue) -> ScalarValue:
    """Compute the logarithm to base 2, exact for powers of two."""
    k, m = exponent_and_mantissa(x)
    return _with_limits(_by_slope(k, 0.0, m - 1.0, LOG2_SLOPE, LOG2), k)


def log10(x: ScalarValue) -> ScalarValue:
    """Compute the logarithm to base 10."""
    k, m = exponent_and_mantissa(x)
    step, step_rest = k * LOG10_2_HIGH, k * LOG10_2_LOW
    return _with_limits(_by_slope(step, step_rest, m - 1.0, LOG10_SLOPE, LOG10), k)


def _log_of(k: ScalarValue, f: ScalarValue) -> ScalarValue:
    """Compute log(2^k * (1 + f))."""
    square = f * f
    # Both parts of log(2) are positive, so that an infinite k does not give NaN.
    total = fma(k, LN2_LOW, f * square * polynomial(f, LOG))
    return fma(k, LN2_HIGH, f + fma(square, -0.5, total))


def _by_slope(
    step: ScalarValue,
    step_rest: ScalarValue | float,
    f: ScalarValue,
    slope: float,
    remainder: Sequence[float],
) -> ScalarValue:
    """Compute step + step_rest + f * (slope + remainder(f)), where step is 0 or larger than f."""
    line = f * slope
    rest = fma(f, polynomial(f, remainder), fma(f, slope, -line)) + step_rest
    near = step + line
    return near + (step - near + line + rest)


def _with_limits(result: ScalarValue, k: ScalarValue) -> ScalarValue:
    """Complete a logarithm of a number with exponent k, which is infinite or NaN for 0 and such."""
    return select(magnitude(k) < math.inf, result, k)
