"""Parts of float64 numbers: exponents and fractions, and pairs.

A pair is the unevaluated sum of two float64 numbers, the second of which is the rounding error of
the first. It stands for a number with up to twice as many bits.
"""

from __future__ import annotations

from mxrun.codegen.scalar_instructions import (
    bits,
    copy_sign,
    fma,
    magnitude,
    nearest_even,
    select,
)
from mxrun.codegen.scalar_value import Number, ScalarValue

Pair = tuple[ScalarValue, ScalarValue]


# 1.5 * 2^52: adding it leaves an integer in the lowest bits.
ROUNDING_SHIFT, ROUNDING_SHIFT_BITS = 6755399441055744.0, 0x4338000000000000
ONE_BITS = 0x3FF0000000000000
ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
SMALLEST_NORMAL = 2.0**-1022
# Products of the high parts with the exponents of float64 numbers are exact.
LN2_HIGH, LN2_LOW = 0.6931471805592082, 7.371002565167799e-13
# Below it functions with a slope of 1 at 0 are their argument.
TINY = 2.0**-60


def pair_sum(x: ScalarValue, y: ScalarValue) -> Pair:
    """Compute x + y as a rounded sum and its error, for |x| >= |y| or x = 0."""
    total = x + y
    return total, y - (total - x)


def any_pair_sum(x: ScalarValue, y: ScalarValue) -> Pair:
    """Compute x + y as a rounded sum and its error."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def pair_product(x: ScalarValue, y: ScalarValue | Number) -> Pair:
    """Compute x * y as a rounded product and its error."""
    product = x * y
    return product, fma(x, y, -product)


def power_of_two(k: ScalarValue) -> ScalarValue:
    """Compute 2^k for an integer k from -1022 to 1023."""
    return bits((bits(k + ROUNDING_SHIFT) << 52) + ONE_BITS)


def scaled(x: ScalarValue, k: ScalarValue) -> ScalarValue:
    """Compute x * 2^k in two steps, of which only the second may leave the range."""
    half = nearest_even(k * 0.5)
    return x * power_of_two(half) * power_of_two(k - half)


def split(x: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Return integer k and f with x = 2^k * (1 + f), 1 + f from sqrt(1/2) to sqrt(2), x normal."""
    above = bits(x) - ROOT_HALF_BITS
    k = bits((above >> 52) + ROUNDING_SHIFT_BITS) - ROUNDING_SHIFT
    return k, bits((above & 0xFFFFFFFFFFFFF) + ROOT_HALF_BITS) - 1.0


def split_any(x: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Return the same for a positive number that may be subnormal."""
    small = x < SMALLEST_NORMAL
    k, f = split(select(small, x * 2.0**54, x))
    return k - select(small, x.constant(54.0), 0.0), f


def odd(x: ScalarValue, result: ScalarValue) -> ScalarValue:
    """Complete an odd function that is x near 0, given its value for |x|."""
    a = magnitude(x)
    return copy_sign(select(a < TINY, a, result), x)
