"""Circular functions of float64 numbers and their inverses.

They are straight-line code without calls, with errors of about two units in the last place. An
argument, however large, is reduced to a multiple of pi / 2 and a rest with more bits than float64
has. The polynomials interpolate at Chebyshev nodes, with errors of less than 2^-57 of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mxrun.codegen.scalar_instructions import (
    bits,
    copy_sign,
    fma,
    magnitude,
    multiply_add,
    polynomial,
    rarely,
    select,
    square_root,
)
from mxrun.codegen.scalar_parts import (
    ROUNDING_SHIFT,
    TINY,
    Pair,
    any_pair_sum,
    odd,
    pair_product,
    pair_sum,
)
from mxrun.codegen.scalar_value import ScalarValue

# From here on a multiple of pi / 2 in three parts is not exact.
FAR = 2.0**20
# The first two have 33 bits, so that their products with multiples below FAR are exact.
HALF_PI_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
HALF_PI, HALF_PI_REST = 1.5707963267948966, 6.123233995736766e-17
TAN_EIGHTH_PI = math.sqrt(2.0) - 1.0
WORD = 0xFFFFFFFF
# Moves of words that lead to the first one that the largest numbers need.
MOVES = {"float32": (4, 2, 1), "float64": (32, 16, 8, 4, 2, 1)}
# (sin(x) / x - 1) / x^2 in x^2, for |x| <= pi / 4.
SIN = (
    -0.16666666666666666,
    0.008333333333333331,
    -0.0001984126984126506,
    2.7557319219335453e-06,
    -2.5052106231157904e-08,
    1.605853141458901e-10,
    -7.586685070091267e-13,
)
# (cos(x) - 1 + x^2 / 2) / x^4 in x^2, for |x| <= pi / 4.
COS = (
    0.041666666666666664,
    -0.0013888888888888887,
    2.4801587301584645e-05,
    -2.755731922140076e-07,
    2.0876755790363397e-09,
    -1.1470460773969324e-11,
    4.745865203787401e-14,
)
# (arctan(x) / x - 1) / x^2 in x^2, for x up to tan(pi / 8).
ARCTAN = (
    -0.3333333333333333,
    0.19999999999999804,
    -0.14285714285659779,
    0.11111111105150588,
    -0.09090908753259112,
    0.07692296368042296,
    -0.0666642476020052,
    0.05878927554473807,
    -0.05230443640686948,
    0.045515447340221615,
    -0.03456931506332609,
    0.016284375050043393,
)
# (arcsin(x) / x - 1) / x^2 in x^2, for x up to 1/2.
ARCSIN = (
    0.16666666666666666,
    0.07500000000000118,
    0.044642857142551895,
    0.03038194447553234,
    0.02237215744350722,
    0.017352816540325496,
    0.01396378001220357,
    0.011566459612121669,
    0.009621842970100282,
    0.009319560794767446,
    0.0030448799094556773,
    0.019554513336123378,
    -0.01924167174674304,
    0.02961201126495512,
)
# The bits of 2 / pi after the point.
TWO_OVER_PI = (
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0"
    "06492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f4"
    "9c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d"
    "7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046"
)


def near(x: ScalarValue) -> tuple[ScalarValue, Pair]:
    """Return the bits of an integer n and the rest of x - n * pi / 2, for |x| < FAR."""
    shifted = fma(x, 2.0 / math.pi, ROUNDING_SHIFT)
    n = shifted - ROUNDING_SHIFT
    first, second, third = HALF_PI_PARTS
    rest = any_pair_sum(fma(n, -first, x), n * -second)
    return bits(shifted), any_pair_sum(rest[0], fma(n, -third, rest[1]))


def far(x: ScalarValue, dtype: str) -> tuple[ScalarValue, Pair]:
    """Return the same for FAR <= |x| < infinity that fit `dtype`, by integers.

    The method is Payne's and Hanek's (1983). |x| is m * 2^e with an integer m. Bits of 2 / pi whose
    products with |x| are multiples of 4 are left out. The first 192 others times m, modulo 2^192,
    begin with n modulo 4 in two bits.
    """
    pattern = bits(magnitude(x))
    m = (pattern & 0xFFFFFFFFFFFFF) | (1 << 52)
    first, second, *others = _product(m, _bits_of_two_over_pi((pattern >> 52) - 1013, MOVES[dtype]))
    high = (first << 32) | second
    n = (high + (1 << 61)) >> 62
    # The rest is signed; complements make it positive.
    high = high - (n << 62)
    sign = high >> 63
    high = high ^ sign
    words = [high >> 32, high & WORD, *((word ^ sign) & WORD for word in others)]
    a, b, c, d = (word.convert("float64") * 2.0 ** (-30 - 32 * i) for i, word in enumerate(words))
    share, share_rest = pair_sum(a, b + c)
    rest, low = pair_product(share, HALF_PI)
    low = multiply_add(share, HALF_PI_REST, multiply_add(share_rest + d, HALF_PI, low))
    negative = x < 0.0
    flips = negative ^ (sign < 0)
    pair = (select(flips, -each, each) for each in pair_sum(rest, low))
    return select(negative, -n, n), (next(pair), next(pair))


def _bits_of_two_over_pi(position: ScalarValue, steps: Sequence[int]) -> list[ScalarValue]:
    """Return 192 bits of 2 / pi from a position on, which counts from 64 bits before its first."""
    digits = "0" * 16 + TWO_OVER_PI.ljust(8 * 68, "0")
    words = [position.constant(int(digits[i : i + 8], 16)) for i in range(0, len(digits), 8)]
    index, shift = position >> 5, position & 31
    # A shifter: every step moves the words by a power of two, or not.
    for step in steps:
        moves = (index & step) != 0
        words = [select(moves, words[i + step], words[i]) for i in range(step + 6)]
    return [((words[i] << shift) | (words[i + 1] >> (32 - shift))) & WORD for i in range(6)]


def _product(m: ScalarValue, words: Sequence[ScalarValue]) -> list[ScalarValue]:
    """Return the highest four words, modulo their range, of m times six words."""
    lower, upper = m & WORD, m >> 32
    by_lower = [lower * word for word in words]
    by_upper = [upper * word for word in words]
    carry, found = m.constant(0), []
    for i in range(4, -1, -1):
        total = carry + (by_lower[i] & WORD) + ((by_lower[i + 1] >> 32) & WORD)
        total = total + (by_upper[i + 1] & WORD)
        if i < 4:
            total = total + (by_upper[i + 2] >> 32)
        found.append(total & WORD)
        carry = total >> 32
    return found[:0:-1]


def _sin_of_rest(rest: Pair) -> ScalarValue:
    """Compute the sine of a pair of at most pi / 4."""
    x, low = rest
    square = x * x
    return x + multiply_add(
        x * square, polynomial(square, SIN), multiply_add(square, low * -0.5, low)
    )


def _cos_of_rest(rest: Pair) -> ScalarValue:
    """Compute the cosine of a pair of at most pi / 4."""
    x, low = rest
    square = x * x
    half = square * 0.5
    whole = 1.0 - half
    return whole + multiply_add(
        square * square, polynomial(square, COS), (1.0 - whole - half) - x * low
    )


def _wave(n: ScalarValue, rest: Pair) -> ScalarValue:
    """Compute the sine of n * pi / 2 + rest."""
    value = select((n & 1) == 0, _sin_of_rest(rest), _cos_of_rest(rest))
    return bits(bits(value) ^ ((n & 2) << 62))


def _slope(n: ScalarValue, rest: Pair) -> ScalarValue:
    """Compute the tangent of n * pi / 2 + rest."""
    sine, cosine, even = _sin_of_rest(rest), _cos_of_rest(rest), (n & 1) == 0
    return select(even, sine, -cosine) / select(even, cosine, sine)


def is_far(x: ScalarValue) -> ScalarValue:
    """Return whether |x| is too large for `near`, or NaN."""
    return ~(magnitude(x) < FAR)


def far_sin(x: ScalarValue, dtype: str) -> ScalarValue:
    """Compute the sine of a large number that fits `dtype`."""
    return select(magnitude(x) < math.inf, _wave(*far(x, dtype)), math.nan)


def far_cos(x: ScalarValue, dtype: str) -> ScalarValue:
    """Compute the cosine of a large number that fits `dtype`."""
    n, rest = far(x, dtype)
    return select(magnitude(x) < math.inf, _wave(n + 1, rest), math.nan)


def far_tan(x: ScalarValue, dtype: str) -> ScalarValue:
    """Compute the tangent of a large number that fits `dtype`."""
    return select(magnitude(x) < math.inf, _slope(*far(x, dtype)), math.nan)


def sin(x: ScalarValue) -> ScalarValue:
    """Compute the sine."""
    ordinary = select(magnitude(x) < TINY, x, _wave(*near(x)))
    return rarely(is_far(x), far_sin(x, "float64"), ordinary)


def cos(x: ScalarValue) -> ScalarValue:
    """Compute the cosine."""
    n, rest = near(x)
    return rarely(is_far(x), far_cos(x, "float64"), _wave(n + 1, rest))


def tan(x: ScalarValue) -> ScalarValue:
    """Compute the tangent."""
    ordinary = select(magnitude(x) < TINY, x, _slope(*near(x)))
    return rarely(is_far(x), far_tan(x, "float64"), ordinary)


def arctan(x: ScalarValue) -> ScalarValue:
    """Compute the inverse tangent, reduced to at most pi / 8.

    arctan(a) is pi / 4 + arctan((a - 1) / (a + 1)), and pi / 2 - arctan(1 / a).
    """
    a = magnitude(x)
    middle, large = a > TAN_EIGHTH_PI, a > 1.0 / TAN_EIGHTH_PI
    up = select(large, x.constant(-1.0), select(middle, a - 1.0, a))
    down = select(large, a, select(middle, a + 1.0, 1.0))
    part, rest = (
        select(large, x.constant(each), select(middle, x.constant(each / 2), 0.0))
        for each in (HALF_PI, HALF_PI_REST)
    )
    t = up / down
    square = t * t
    return odd(x, part + (t + multiply_add(t * square, polynomial(square, ARCTAN), rest)))


def _arcsin_parts(
    x: ScalarValue, series: Sequence[float]
) -> tuple[ScalarValue, ScalarValue, ScalarValue]:
    """Return whether |x| > 1/2, and s and arcsin(s) - s.

    s is |x| or, with arcsin(|x|) = pi / 2 - 2 * arcsin(s), sqrt((1 - |x|) / 2).
    """
    a = magnitude(x)
    large = a > 0.5
    square = select(large, multiply_add(a, -0.5, 0.5), a * a)
    s = select(large, square_root(square), a)
    return large, s, s * square * polynomial(square, series)


def arcsin(x: ScalarValue, coefficients: Sequence[float] = ARCSIN) -> ScalarValue:
    """Compute the inverse sine, with the coefficients of (arcsin(x) / x - 1) / x^2."""
    large, s, series = _arcsin_parts(x, coefficients)
    far_result = HALF_PI - multiply_add(series, 2.0, s * 2.0 - HALF_PI_REST)
    return odd(x, select(large, far_result, s + series))


def arccos(x: ScalarValue, coefficients: Sequence[float] = ARCSIN) -> ScalarValue:
    """Compute the inverse cosine, with the coefficients of `arcsin`."""
    large, s, series = _arcsin_parts(x, coefficients)
    double = (s + series) * 2.0
    beside = select(x > 0.0, double, 2.0 * HALF_PI - (double - 2.0 * HALF_PI_REST))
    signed = copy_sign(s, x)
    return select(large, beside, HALF_PI - (signed - (HALF_PI_REST - copy_sign(series, x))))
