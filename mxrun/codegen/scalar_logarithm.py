"""Logarithms, inverse hyperbolic functions, powers and cube roots of float64 numbers.

They are straight-line code without calls, with errors of about two units in the last place. The
polynomials interpolate at Chebyshev nodes, with errors of less than 2^-57 of the result.
"""

from __future__ import annotations

import math

from mxrun.codegen.scalar_exponential import exp_of_pair
from mxrun.codegen.scalar_instructions import (
    at_most,
    copy_sign,
    fma,
    magnitude,
    multiply_add,
    nearest_even,
    polynomial,
    rarely,
    select,
    square_root,
)
from mxrun.codegen.scalar_parts import (
    LN2_HIGH,
    LN2_LOW,
    Pair,
    odd,
    pair_product,
    pair_sum,
    power_of_two,
    split,
    split_any,
)
from mxrun.codegen.scalar_value import Number, ScalarValue

LOG10_2_HIGH, LOG10_2_LOW = 0.30102999566361177, 3.694239077158931e-13
CUBE_ROOT_2 = 2.0 ** (1 / 3)
# (log((1 + s) / (1 - s)) / s - 2) / s^2 in s^2, for s up to f / (2 + f) with f = sqrt(2) - 1.
LOG = (
    0.6666666666666666,
    0.4000000000000088,
    0.2857142857080361,
    0.22222222391714744,
    0.18181795640044723,
    0.15386239707611124,
    0.13268773010203216,
    0.13086627491197242,
)
# The same minus 2/3, divided by s^2 once more.
LOG_REST = (
    0.4,
    0.28571428571429364,
    0.22222222221655885,
    0.18181818335392802,
    0.1538459496251843,
    0.1333480469384731,
    0.11706236339491206,
    0.11723178623876518,
)
TWO_THIRDS_REST = 3.700743415417188e-17  # 2/3 minus its float64 number
# The cube root from sqrt(1/2) to sqrt(2), error 2^-22.
CBRT = (
    0.3996951446865334,
    1.1890300949279746,
    -1.167199483864666,
    0.9453125400840441,
    -0.49622535361458026,
    0.14865407435804498,
    -0.01926717343884374,
)


def log_of(k: ScalarValue | Number, f: ScalarValue) -> ScalarValue:
    """Compute log(2^k * (1 + f)), with log(1 + f) = f - f^2 / 2 + s * (f^2 / 2 + s^2 * LOG)."""
    s = f / (f + 2.0)
    square, half = s * s, f * f * 0.5
    # Two chains of half the length: in native functions nothing else may be there to compute.
    fourth = square * square
    series = multiply_add(square, polynomial(fourth, LOG[1::2]), polynomial(fourth, LOG[::2]))
    inner = s * multiply_add(square, series, half)
    if isinstance(k, ScalarValue):
        return multiply_add(k, LN2_HIGH, f - (half - multiply_add(k, LN2_LOW, inner)))
    return f - (half - inner)


def log_pair(k: ScalarValue, f: ScalarValue) -> Pair:
    """Compute log(2^k * (1 + f)) with 11 additional bits.

    The logarithm of 1 + f is 2 * s + s^3 * (2/3 + s^2 * LOG_REST).
    """
    total, total_rest = pair_sum(f.constant(2.0), f)
    s = f / total
    s_rest = (fma(-s, total, f) - s * total_rest) / total
    square, square_rest = pair_product(s, s)
    square_rest = multiply_add(s * 2.0, s_rest, square_rest)
    cube, cube_rest = pair_product(s, square)
    cube_rest = cube_rest + multiply_add(s, square_rest, s_rest * square)
    factor, factor_rest = pair_sum(s.constant(2 / 3), square * polynomial(square, LOG_REST))
    term, term_rest = pair_product(cube, factor)
    term_rest = term_rest + multiply_add(cube, factor_rest + TWO_THIRDS_REST, cube_rest * factor)
    high, low = pair_sum(s * 2.0, term)
    low = low + multiply_add(s_rest, 2.0, term_rest)
    total, rest = pair_sum(k * LN2_HIGH, high)
    return pair_sum(total, rest + multiply_add(k, LN2_LOW, low))


def _of_positive(x: ScalarValue, result: ScalarValue) -> ScalarValue:
    """Complete a logarithm, given its value for positive finite numbers."""
    result = select(x < math.inf, result, x)
    return select(x > 0.0, result, select(x == 0.0, x.constant(-math.inf), math.nan))


def log(x: ScalarValue) -> ScalarValue:
    """Compute the natural logarithm."""
    return _of_positive(x, log_of(*split_any(x)))


def log2(x: ScalarValue) -> ScalarValue:
    """Compute the logarithm to base 2, exact for powers of two."""
    k, f = split_any(x)
    return _of_positive(x, multiply_add(log_of(0.0, f), math.log2(math.e), k))


def log10(x: ScalarValue) -> ScalarValue:
    """Compute the logarithm to base 10."""
    k, f = split_any(x)
    total = multiply_add(k, LOG10_2_LOW, log_of(0.0, f) * math.log10(math.e))
    return _of_positive(x, multiply_add(k, LOG10_2_HIGH, total))


def _split_after_1(x: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Return integer k and f with 1 + x = 2^k * (1 + f), f rounded once."""
    k, f = split(x + 1.0)
    inverse = power_of_two(-at_most(k, 1000.0))
    # Where the exponent is large, 1 does not matter.
    return k, select(x < 2.0**60, multiply_add(x, inverse, inverse - 1.0), f)


def log1p(x: ScalarValue) -> ScalarValue:
    """Compute log(1 + x), to full relative accuracy near 0."""
    result = select(x == 0.0, x, log_of(*_split_after_1(x)))
    result = select(x < math.inf, result, x)
    return select(x > -1.0, result, select(x == -1.0, x.constant(-math.inf), math.nan))


def _log_of_double(large: ScalarValue, x: ScalarValue, near: ScalarValue) -> ScalarValue:
    """Compute log(2 x) where `large` holds, else log(1 + near), both for numbers above 0."""
    k, f = _split_after_1(select(large, x, near))
    return log_of(k + select(large, x.constant(1.0), 0.0), f)


def arcsinh(x: ScalarValue) -> ScalarValue:
    """Compute log(|x| + sqrt(x^2 + 1)) with the sign of x."""
    a = magnitude(x)
    square = a * a
    near = a + square / (square_root(square + 1.0) + 1.0)
    result = _log_of_double(a > 2.0**60, a, near)
    return odd(x, select(a < math.inf, result, a))


def arccosh(x: ScalarValue) -> ScalarValue:
    """Compute log(x + sqrt(x^2 - 1))."""
    d = x - 1.0
    near = d + square_root(fma(d, d, d * 2.0))
    result = select(x < math.inf, _log_of_double(x > 2.0**60, x, near), x)
    return select(x > 1.0, result, select(x == 1.0, x.constant(0.0), math.nan))


def arctanh(x: ScalarValue) -> ScalarValue:
    """Compute log((1 + |x|) / (1 - |x|)) / 2 with the sign of x."""
    a = magnitude(x)
    return odd(x, log1p(a * 2.0 / (1.0 - a)) * 0.5)


def cbrt(x: ScalarValue) -> ScalarValue:
    """Compute the cube root: a polynomial and two of Newton's steps with the same slope."""
    a = magnitude(x)
    k, f = split_any(a)
    third = nearest_even(k * (1 / 3))
    rest = fma(third, -3.0, k)
    up, down = rest > 0.0, rest < 0.0
    goal = (f + 1.0) * select(up, x.constant(2.0), select(down, x.constant(0.5), 1.0))
    first = polynomial(f + 1.0, CBRT)
    first = first * select(
        up, x.constant(CUBE_ROOT_2), select(down, x.constant(1 / CUBE_ROOT_2), 1.0)
    )
    inverse = (1 / 3) / (first * first)
    root = fma(fma(first * first, first, -goal), -inverse, first)
    square, square_rest = pair_product(root, root)
    root = fma(fma(square_rest, root, fma(square, root, -goal)), -inverse, root)
    result = copy_sign(root * power_of_two(third), x)
    return select((a > 0.0) & (a < math.inf), result, x)


def pow(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """Compute x^y; special values follow C's pow."""
    high, low = log_pair(*split_any(magnitude(x)))
    product, rest = pair_product(y, high)
    return with_limits_of_pow(x, y, exp_of_pair(product, fma(y, low, rest)))


def with_limits_of_pow(x: ScalarValue, y: ScalarValue, power: ScalarValue) -> ScalarValue:
    """Complete x^y, given power = |x|^y for finite positive |x|."""
    usual = (x > 0.0) & (x < math.inf) & (magnitude(y) < math.inf)
    return rarely(~usual, _limited_power(x, y, power), power)


def _limited_power(x: ScalarValue, y: ScalarValue, power: ScalarValue) -> ScalarValue:
    """Compute x^y for special values and signs, given power = |x|^y for finite positive |x|."""
    a, down = magnitude(x), y < 0.0
    zero, infinite = x.constant(0.0), x.constant(math.inf)
    power = select(a == 0.0, select(down, infinite, zero), power)
    power = select(a == infinite, select(down, zero, infinite), power)
    power = select((a == 1.0) | (y == 0.0), 1.0, power)
    is_integer = nearest_even(y) == y
    half = y * 0.5
    odd = is_integer & (nearest_even(half) != half)
    power = select(odd, copy_sign(power, x), power)
    undefined = ((x < 0.0) & (a < infinite) & ~is_integer) | (y != y) | (x != x)
    return select(undefined & (x != 1.0) & (y != 0.0), math.nan, power)
