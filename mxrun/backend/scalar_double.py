"""Elementary functions of float32 numbers, computed in float64 and rounded at the end.

They are rarer than those of `scalar_float32`, or need more bits than float32 has: sine and powers
of large arguments, and everything about the gamma function. In float64 the subnormal numbers of
float32 are normal, and rounding errors are far below half a unit in the last place of float32. The
polynomials interpolate at Chebyshev nodes, with errors of 1e-10 or less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mxrun.backend.scalar_instructions import (
    at_least,
    at_most,
    bits,
    copy_sign,
    fma,
    magnitude,
    nearest_even,
    polynomial,
    rarely,
    select,
    square_root,
    table,
    truncate,
)
from mxrun.backend.scalar_value import ScalarValue

# Like in scalar_float32, for float64: adding ROUNDING_SHIFT leaves an integer in the lowest bits.
ROUNDING_SHIFT, ROUNDING_SHIFT_BITS = 6755399441055744.0, 0x4338000000000000
ONE_BITS = 0x3FF0000000000000
ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE51
TWO_OVER_PI_BITS = 208

# e^r for |r| <= log(2) / 2, error 2^-32.
EXP = (
    1.0,
    1.0,
    0.5000000013457727,
    0.16666666681614256,
    0.04166646500604005,
    0.008333310934448869,
    0.0013933641031986701,
    0.00019890980869750327,
)
# (log((1 + s) / (1 - s)) / s - 2) / s^2 in s^2, for s up to f / (2 + f) with f = sqrt(2) - 1, error
# 2^-43.
LOG = (
    0.6666666666737617,
    0.39999998796845354,
    0.28571754596190235,
    0.2219139809761344,
    0.19362695001646021,
)
# (sin(x) / x - 1) / x^2 in x^2, for |x| <= pi / 2, error 2^-33.
HALF_WAVE = (
    -0.16666666663881186,
    0.008333332768750838,
    -0.00019841086561079153,
    2.753646354098803e-06,
    -2.4080190044261897e-08,
)
# (sin(x) / x - 1) / x^2 in x^2, for |x| <= pi / 4, to float64 precision.
SIN = (
    -0.16666666666666666,
    0.008333333333333331,
    -0.0001984126984126504,
    2.755731921932058e-06,
    -2.50521062259944e-08,
    1.6058530596645953e-10,
    -7.586636882825159e-13,
)
# (cos(x) - 1 + x^2 / 2) / x^4 in x^2, for |x| <= pi / 4, to float64 precision.
COS = (
    0.041666666666666664,
    -0.0013888888888888887,
    2.4801587301584632e-05,
    -2.755731922139249e-07,
    2.0876755787492604e-09,
    -1.1470460319209511e-11,
    4.745838412531023e-14,
)
# (atan(x) / x - 1) / x^2 in x^2, for |x| <= 1.
ATAN = (
    -0.3333333332694414,
    0.19999998154086215,
    -0.14285624891483525,
    0.11109392308322223,
    -0.09073553118976409,
    0.0758665283364667,
    -0.06246315194128317,
    0.047294798621813336,
    -0.02991311194551696,
    0.014072923344697239,
    -0.0042216579909296476,
    0.0005930437556365282,
)
# (asin(x) / x - 1) / x^2 in x^2, for |x| <= 1/2.
ASIN = (
    0.1666666666666218,
    0.07500000003584559,
    0.04464285243793872,
    0.030382182776212484,
    0.02236606593888501,
    0.017441495685492855,
    0.01318791613675373,
    0.015675662527070935,
    -0.0029397929067241963,
    0.0279070314326661,
)
# (sinh(x) / x - 1) / x^2 in x^2, for |x| <= 1.
SINH = (
    0.1666666666666663,
    0.008333333333360515,
    0.00019841269809566648,
    2.7557332743306003e-06,
    2.5049503805057475e-08,
    1.6290047203302096e-10,
)
# The same function as in scalar_float32.
NORMAL_TAIL = (
    0.7290836903727042,
    -0.5093319914089068,
    0.2300176997062668,
    -0.04726268777591071,
    -0.010462516874992472,
    0.006969306434023524,
    0.001024769983106197,
    -0.0010325471726116045,
    -0.00024474306937424323,
    0.0001312896341546832,
    5.447099619668254e-05,
)
# erfinv(x) / x in w - 2.5, for w = -log(1 - x^2) below 5.
ERFINV_CENTRE = (
    1.501409351110792,
    0.24664027674340921,
    -0.004177317724362597,
    -0.0012527079019778033,
    0.00021825026418072067,
    -4.99609273871219e-06,
    -3.4166192205309163e-06,
    4.787385618983709e-07,
    1.3416407669430932e-08,
    -1.0868396255551714e-08,
    9.07530552332064e-10,
    1.2184862746623284e-10,
    -3.117936392611809e-11,
    5.084791834619767e-13,
    5.513239365341693e-13,
    -3.6030416116753124e-14,
    -4.8165529439561895e-15,
)
# erfinv(x) / x in sqrt(w) - 3.1, for w from 5 to 16.8.
ERFINV_TAIL = (
    2.9332316722089833,
    1.0033561160598654,
    0.007460090862840773,
    -0.00569660277813872,
    0.004121386828573276,
    -0.0027131620266567626,
    0.001316579860614297,
    -0.0003079645429593135,
    -0.00012242595047522883,
    0.00015230934198067592,
    -5.7914098304439263e-05,
    -4.396394685142556e-06,
    1.297182918609914e-05,
    -3.7780348953437507e-06,
)


def widened(function: Callable[..., ScalarValue]) -> Callable[..., ScalarValue]:
    """Convert a function of float64 values to one of float32 values, rounded once at the end."""

    def rounded(*arguments: ScalarValue) -> ScalarValue:
        return function(*(argument.convert("float64") for argument in arguments)).convert("float32")

    return rounded


def exp(x: ScalarValue) -> ScalarValue:
    """Compute e^x; x is clipped to [-200, 200], beyond the range of float32."""
    z = at_most(at_least(x, -200.0), 200.0)
    shifted = fma(z, math.log2(math.e), ROUNDING_SHIFT)
    k = shifted - ROUNDING_SHIFT
    r = fma(k, -LN2_LOW, fma(k, -LN2_HIGH, z))
    return polynomial(r, EXP) * bits((bits(shifted) << 52) + ONE_BITS)


def _split(x: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Return integer k and the bits of m with x = 2^k * m, m from sqrt(1/2) to sqrt(2)."""
    above = bits(x) - ROOT_HALF_BITS
    k = bits((above >> 52) + ROUNDING_SHIFT_BITS) - ROUNDING_SHIFT
    return k, (above & 0xFFFFFFFFFFFFF) + ROOT_HALF_BITS


def _log_of(k: ScalarValue, f: ScalarValue, coefficients: Sequence[float] = LOG) -> ScalarValue:
    """Compute log(2^k * (1 + f))."""
    s = f / (f + 2.0)
    square = s * s
    total = fma(k, LN2_LOW, s * square * polynomial(square, coefficients))
    return fma(k, LN2_HIGH, fma(s, 2.0, total))


def positive_log(x: ScalarValue, coefficients: Sequence[float] = LOG) -> ScalarValue:
    """Compute the natural logarithm of a positive normal number, with LOG or a longer series."""
    k, m = _split(x)
    return _log_of(k, bits(m) - 1.0, coefficients)


def _limited_log(x: ScalarValue) -> ScalarValue:
    """Compute the natural logarithm, including 0, infinity, NaN and negative numbers."""
    limits = select(x == 0.0, x.constant(-math.inf), math.nan)
    return select(x > 0.0, select(x < math.inf, positive_log(x), x), limits)


def log2(x: ScalarValue) -> ScalarValue:
    """Compute the logarithm to base 2."""
    return _limited_log(x) * math.log2(math.e)


def log10(x: ScalarValue) -> ScalarValue:
    """Compute the logarithm to base 10."""
    return _limited_log(x) * math.log10(math.e)


def log1p(x: ScalarValue) -> ScalarValue:
    """Compute log(1 + x), to full relative accuracy near 0."""
    k, _ = _split(x + 1.0)
    inverse = bits(ONE_BITS - (bits(k + ROUNDING_SHIFT) << 52))
    total = _log_of(k, fma(x, inverse, inverse - 1.0))
    total = select(x < math.inf, total, x)
    total = select(x == 0.0, x, total)
    return select(x > -1.0, total, select(x == -1.0, x.constant(-math.inf), math.nan))


def pow(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """Compute x^y; special values follow C's pow."""
    a = magnitude(x)
    power = exp(y * positive_log(a))
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


def mod(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """Compute x - floor(x / y) * y of float32 numbers, however large the quotient is."""
    rest = x
    # A quotient below 2^29 is an exact integer, and its product with a float32 is exact. Ten such
    # steps cover the largest quotient, near 2^277.
    for step in reversed(range(10)):
        part = y * 2.0 ** (29 * step)
        quotient = truncate(rest / part)
        rest = rest - select(quotient == 0.0, 0.0, quotient * part)
    return with_divisor_sign(rest, y)


def with_divisor_sign(rest: ScalarValue, y: ScalarValue) -> ScalarValue:
    """Adjust a remainder of either sign, |rest| <= |y|, to the sign of y."""
    return copy_sign(select(copy_sign(rest, y) != rest, rest + y, rest), y)


def cbrt(x: ScalarValue) -> ScalarValue:
    """Compute the cube root: two Halley iterations from a third of the exponent."""
    a = magnitude(x)
    # The bits of a number approximate its logarithm; 0x2A9F... corrects the exponent's bias.
    third = bits(a).convert("float64") * (1.0 / 3.0) + float(0x2A9F7893782DA1CE)
    root = bits(third.convert("int64"))
    for _ in range(2):
        cube = root * root * root
        root = root * (cube + a + a) / (cube + cube + a)
    usual = (a > 0.0) & (a < math.inf)
    return select(usual, copy_sign(root, x), x)


def rcbrt(x: ScalarValue) -> ScalarValue:
    """Compute 1 / cbrt(x)."""
    return 1.0 / cbrt(x)


def _is_far(x: ScalarValue) -> ScalarValue:
    """Return whether |x| >= 2^23, too large to subtract a multiple of pi exactly."""
    return ~(magnitude(x) < 2.0**23)


def _payne_hanek(x: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Return q and r with x = q * pi / 2 + r modulo 2 pi, |r| <= pi / 4; q is an int64 value.

    From 2^23 on, x is m * 2^e with integer m and e >= 0: of 2 / pi only the bits that determine
    (2^e * 2 / pi) mod 4 matter, and 96 of those suffice for the worst case.
    """
    a = magnitude(x)
    raw = bits(a)
    exponent = (raw >> 52) - (1023 + 23)
    exponent = at_most(at_least(exponent, 0), 104)
    mantissa = ((raw >> 29) & 0x7FFFFF) | 0x800000
    upper, lower = (table(exponent, words) for words in _two_over_pi_windows())
    product = mantissa * upper + ((mantissa * lower) >> 32)
    part = (product << 2) >> 2
    r = select(a < math.inf, part.convert("float64") * (math.pi / 2 * 2.0**-62), math.nan)
    quadrant = (product - part) >> 62
    negative = bits(x) < 0
    return select(negative, -quadrant, quadrant), select(negative, -r, r)


def _two_over_pi_windows() -> tuple[Sequence[int], Sequence[int]]:
    """Return for every e to 104: (2^e * 2 / pi) mod 4 in units of 2^-62, and the next 32 bits."""
    windows = [
        (TWO_OVER_PI >> (TWO_OVER_PI_BITS - exponent - 94)) % 2**96 for exponent in range(105)
    ]
    upper = [window >> 32 for window in windows]
    return [word - 2**64 * (word >> 63) for word in upper], [window % 2**32 for window in windows]


def sin_cos(r: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Compute sin(r) and cos(r) for |r| <= pi / 4."""
    square = r * r
    sine = r * fma(square, polynomial(square, SIN), 1.0)
    cosine = fma(square * square, polynomial(square, COS), fma(square, -0.5, 1.0))
    return sine, cosine


def _without_half_pi(x: ScalarValue, multiple: ScalarValue) -> ScalarValue:
    """Compute x minus a multiple of pi / 2."""
    return fma(multiple, -HALF_PI_LOW, fma(multiple, -HALF_PI_HIGH, x))


def _wave(r: ScalarValue, shifted: ScalarValue) -> ScalarValue:
    """Compute sin(r) for |r| <= pi / 2, negated if the integer in `shifted` is odd."""
    square = r * r
    value = r * fma(square, polynomial(square, HALF_WAVE), 1.0)
    return bits(bits(value) ^ (bits(shifted) << 63))


def sin(x: ScalarValue) -> ScalarValue:
    """Compute the sine."""
    shifted = fma(x, 1.0 / math.pi, ROUNDING_SHIFT)
    ordinary = _wave(_without_half_pi(x, (shifted - ROUNDING_SHIFT) * 2.0), shifted)
    quadrant, r = _payne_hanek(x)
    sine, cosine = sin_cos(r)
    value = select((quadrant & 1) == 1, cosine, sine)
    return rarely(_is_far(x), select((quadrant & 2) == 2, -value, value), ordinary)


def cos(x: ScalarValue) -> ScalarValue:
    """Compute the cosine as the sine of x + pi / 2."""
    a = magnitude(x)
    shifted = fma(a, 1.0 / math.pi, 0.5) + ROUNDING_SHIFT
    ordinary = _wave(_without_half_pi(a, fma(shifted - ROUNDING_SHIFT, 2.0, -1.0)), shifted)
    quadrant, r = _payne_hanek(a)
    sine, cosine = sin_cos(r)
    value = select((quadrant & 1) == 1, sine, cosine)
    return rarely(_is_far(x), select(((quadrant + 1) & 2) == 2, -value, value), ordinary)


def tan(x: ScalarValue) -> ScalarValue:
    """Compute the tangent."""
    shifted = fma(x, 2.0 / math.pi, ROUNDING_SHIFT)
    ordinary = _slope_of(bits(shifted), _without_half_pi(x, shifted - ROUNDING_SHIFT))
    return rarely(_is_far(x), _slope_of(*_payne_hanek(x)), ordinary)


def _slope_of(quadrant: ScalarValue, r: ScalarValue) -> ScalarValue:
    """Compute tan(quadrant * pi / 2 + r)."""
    sine, cosine = sin_cos(r)
    odd = (quadrant & 1) == 1
    return select(odd, -cosine, sine) / select(odd, sine, cosine)


def arcsin(x: ScalarValue) -> ScalarValue:
    """Compute the inverse sine."""
    a = magnitude(x)
    large, part = _arc(a)
    return copy_sign(select(large, math.pi / 2 - 2.0 * part, part), x)


def arccos(x: ScalarValue) -> ScalarValue:
    """Compute the inverse cosine."""
    large, part = _arc(magnitude(x))
    double = part + part
    outer = select(x < 0.0, math.pi - double, double)
    return select(large, outer, math.pi / 2 - copy_sign(part, x))


def _arc(a: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Return whether a > 1/2, and asin(a), or asin(sqrt((1 - a) / 2)) if it is."""
    large = a > 0.5
    square = select(large, 0.5 - a * 0.5, a * a)
    sine = select(large, square_root(square), a)
    return large, fma(sine * square, polynomial(square, ASIN), sine)


def arctan(x: ScalarValue) -> ScalarValue:
    """Compute the inverse tangent."""
    a = magnitude(x)
    large = a > 1.0
    t = select(large, 1.0 / a, a)
    square = t * t
    arc = fma(t * square, polynomial(square, ATAN), t)
    return copy_sign(select(large, math.pi / 2 - arc, arc), x)


def sinh(x: ScalarValue) -> ScalarValue:
    """Compute the hyperbolic sine."""
    a = magnitude(x)
    square = x * x
    series = fma(x * square, polynomial(square, SINH), x)
    power = exp(a)
    return select(a < 1.0, series, copy_sign((power - 1.0 / power) * 0.5, x))


def cosh(x: ScalarValue) -> ScalarValue:
    """Compute the hyperbolic cosine."""
    power = exp(magnitude(x))
    return (power + 1.0 / power) * 0.5


def arcsinh(x: ScalarValue) -> ScalarValue:
    """Compute the inverse hyperbolic sine."""
    a = magnitude(x)
    square = a * a
    inner = a + square / (square_root(square + 1.0) + 1.0)
    return copy_sign(select(a < math.inf, log1p(inner), a), x)


def arccosh(x: ScalarValue) -> ScalarValue:
    """Compute the inverse hyperbolic cosine."""
    t = x - 1.0
    return select(x >= 1.0, log1p(t + square_root(t * (t + 2.0))), math.nan)


def arctanh(x: ScalarValue) -> ScalarValue:
    """Compute the inverse hyperbolic tangent."""
    return log1p((x + x) / (1.0 - x)) * 0.5


def erfc(x: ScalarValue) -> ScalarValue:
    """Compute 1 - erf(x), to full relative accuracy for large x."""
    a = at_most(magnitude(x), 10.3)
    scaled = a * math.sqrt(2.0)
    inverse = 1.0 / (scaled + 3.0)
    tail = inverse * polynomial((scaled - 3.0) * inverse, NORMAL_TAIL) * exp(-a * a) * 2.0
    return select(x < 0.0, 2.0 - tail, tail)


def erfinv(x: ScalarValue) -> ScalarValue:
    """Compute the inverse error function."""
    gap = (1.0 - x) * (x + 1.0)
    w = -positive_log(gap)
    centre = polynomial(w - 2.5, ERFINV_CENTRE)
    tail = polynomial(square_root(w) - 3.1, ERFINV_TAIL)
    value = x * select(w < 5.0, centre, tail)
    limits = select(gap == 0.0, x * math.inf, math.nan)
    return select(gap > 0.0, value, limits)
