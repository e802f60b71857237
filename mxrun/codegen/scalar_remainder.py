"""Remainder of a division, exact however large the quotient is."""

from __future__ import annotations

import math

from mxrun.codegen.scalar_instructions import (
    bits,
    copy_sign,
    fma,
    magnitude,
    rarely,
    select,
    truncate,
)
from mxrun.codegen.scalar_parts import (
    ROUNDING_SHIFT,
    ROUNDING_SHIFT_BITS,
    SMALLEST_NORMAL,
    scaled,
)
from mxrun.codegen.scalar_value import ScalarValue

# Binary digits of a quotient that a division yields, so that its product is exact.
DIGITS = 51
# Largest differences of the exponents of two numbers.
LARGEST_DIFFERENCE = {"float32": 276, "float64": 2097}


def mod(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """Compute x - floor(x / y) * y for float64 numbers."""
    usual = (magnitude(x) < magnitude(y) * 2.0**DIGITS) & (magnitude(y) < math.inf)
    rest = rarely(~usual, long_rest(x, y, "float64"), _step(x, y))
    return with_divisor_sign(rest, y)


def long_rest(x: ScalarValue, y: ScalarValue, dtype: str) -> ScalarValue:
    """Compute x minus a multiple of y, of either sign, for float64 x and y that fit `dtype`.

    Long division: every step subtracts a multiple of y times a power of two.
    """
    b = magnitude(y)
    exponent = _exponent(b)
    rest = x
    for _ in range(-(-LARGEST_DIFFERENCE[dtype] // DIGITS) - 1):
        excess = _exponent(magnitude(rest)) - exponent - DIGITS
        shift = bits(select(excess > 0, excess, 0) + ROUNDING_SHIFT_BITS) - ROUNDING_SHIFT
        rest = _step(rest, scaled(b, shift))
    return select((b == math.inf) & (magnitude(x) < math.inf), x, _step(rest, b))


def _step(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """Subtract the multiple of y next to x, or the one before it."""
    return fma(-truncate(x / y), y, x)


def _exponent(a: ScalarValue) -> ScalarValue:
    """Return the biased exponent of a number that is not negative, also of a subnormal one."""
    small = a < SMALLEST_NORMAL
    field = bits(select(small, a * 2.0**54, a)) >> 52
    return field - select(small, field.constant(54), 0)


def with_divisor_sign(rest: ScalarValue, y: ScalarValue) -> ScalarValue:
    """Adjust a remainder of either sign, |rest| <= |y|, to the sign of y."""
    return copy_sign(select(copy_sign(rest, y) != rest, rest + y, rest), y)
