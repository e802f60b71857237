"""Functions of float32 numbers that need more bits than float32 has: pow, arctanh, circular ones.

They are computed in float64 vectors and rounded once at the end. In float64 the subnormal numbers
of float32 are normal, and rounding errors are far below half a unit in the last place of float32.
The polynomials interpolate at Chebyshev nodes, with errors of 1e-9 or less.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mxrun.codegen import scalar_circular
from mxrun.codegen.scalar_circular import HALF_PI, HALF_PI_REST, far_cos, far_sin, far_tan
from mxrun.codegen.scalar_instructions import (
    at_least,
    at_most,
    bits,
    copy_sign,
    fma,
    magnitude,
    multiply_add,
    polynomial,
    rarely,
    select,
)
from mxrun.codegen.scalar_logarithm import with_limits_of_pow
from mxrun.codegen.scalar_parts import ROUNDING_SHIFT, power_of_two, split
from mxrun.codegen.scalar_value import ScalarValue

LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
ROOT_2 = math.sqrt(2.0)

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
# P(N < -a) * e^(a^2 / 2) * (a + 2.5) in u = (a - 2.5) / (a + 2.5), for a to NORMAL_END, N standard
# normal, error 2^-29. Further on x * P(N < x) and P(N < x) are 0 in float32.
NORMAL_END = 15.0
NORMAL_TAIL = (
    0.7066566567739313,
    -0.43369212585056116,
    0.13198728435270968,
    0.009238618209165331,
    -0.01639013396622876,
    -0.0016195394274004739,
    0.0025398009157756294,
    0.0007366759006734619,
    -0.0003347300092380901,
    -0.00022024189081436737,
    9.657538251180852e-06,
    2.5150620110571153e-05,
)
# (sin(x) / x - 1) / x^2 in x^2, for |x| <= pi / 2, error 2^-33.
HALF_WAVE = (
    -0.16666666663881186,
    0.008333332768750838,
    -0.00019841086561079153,
    2.753646354098803e-06,
    -2.4080190044261897e-08,
)
# tan(x) / x is a quotient of polynomials in x^2, for |x| <= pi / 4, error 2^-35.
TAN = (1.0000000000182503, -0.11135673956270406, 0.0010748300705318253)
TAN_DIVISOR = (1.0, -0.44469007142544736, 0.01597150204725664)
# (arcsin(x) / x - 1) / x^2 in x^2, for x up to 1/2, error 2^-35.
ARCSIN = (
    0.16666666665495086,
    0.07500000598829049,
    0.044642358484883196,
    0.030397634130580702,
    0.022132443623426794,
    0.019306260869368045,
    0.005443185102748106,
    0.02930523970533579,
)


def widened(function: Callable[..., ScalarValue]) -> Callable[..., ScalarValue]:
    """Convert a function of float64 values to one of float32 values, rounded once at the end."""

    def rounded(*arguments: ScalarValue) -> ScalarValue:
        return function(*(argument.convert("float64") for argument in arguments)).convert("float32")

    return rounded


def _exp(x: ScalarValue) -> ScalarValue:
    """Compute e^x; x is clipped to [-200, 200], beyond the range of float32."""
    return _exp_within(at_most(at_least(x, -200.0), 200.0))


def _exp_within(z: ScalarValue) -> ScalarValue:
    """Compute e^z for |z| <= 200."""
    shifted = multiply_add(z, math.log2(math.e), ROUNDING_SHIFT)
    k = shifted - ROUNDING_SHIFT
    r = multiply_add(k, -LN2_LOW, multiply_add(k, -LN2_HIGH, z))
    return polynomial(r, EXP) * power_of_two(k)


def _normal_tail(a: ScalarValue) -> ScalarValue:
    """Compute P(N < -a) for a from 0 to NORMAL_END."""
    inverse = 1.0 / (a + 2.5)
    scaled = inverse * polynomial(multiply_add(inverse, -5.0, 1.0), NORMAL_TAIL)
    return scaled * _exp_within(a * a * -0.5)


def gelu(x: ScalarValue) -> ScalarValue:
    """Compute x * P(N < x), N standard normal, as max(x, 0) - |x| * P(N < -|x|)."""
    a = at_most(magnitude(x), NORMAL_END)
    return at_least(x, 0.0) - a * _normal_tail(a)


def erfc(x: ScalarValue) -> ScalarValue:
    """Compute 1 - erf(x) as 2 * P(N < -x * sqrt(2))."""
    far = _normal_tail(at_most(magnitude(x) * ROOT_2, NORMAL_END)) * 2.0
    return select(x < 0.0, 2.0 - far, far)


def _log_of(k: ScalarValue, s: ScalarValue) -> ScalarValue:
    """Compute log(2^k * (1 + s) / (1 - s))."""
    square = s * s
    total = multiply_add(k, LN2_LOW, s * square * polynomial(square, LOG))
    return multiply_add(k, LN2_HIGH, multiply_add(s, 2.0, total))


def arctanh(x: ScalarValue) -> ScalarValue:
    """Compute log((1 + a) / (1 - a)) / 2 for a = |x|, with the sign of x."""
    a = magnitude(x)
    exponent, f = split(1.0 - a)
    # The quotient is 2^k times a number from sqrt(1/2) to sqrt(2).
    k = select(a + 1.0 > fma(f, ROOT_2, ROOT_2), 1.0 - exponent, -exponent)
    power = power_of_two(k)
    up, down = power + 1.0, 1.0 - power
    half = _log_of(k, fma(a, up, down) / fma(a, down, up)) * 0.5
    half = select(a < 1.0, half, select(a == 1.0, x.constant(math.inf), math.nan))
    return copy_sign(half, x)


def pow(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """Compute x^y; special values follow C's pow."""
    k, f = split(magnitude(x))
    return with_limits_of_pow(x, y, _exp(y * _log_of(k, f / (f + 2.0))))


def _is_far(x: ScalarValue) -> ScalarValue:
    """Return whether |x| >= 2^23, too large to subtract a multiple of pi exactly."""
    return ~(magnitude(x) < 2.0**23)


def _without_half_pi(x: ScalarValue, multiple: ScalarValue) -> ScalarValue:
    """Compute x minus a multiple of pi / 2."""
    return fma(multiple, -HALF_PI_REST, fma(multiple, -HALF_PI, x))


def _wave(r: ScalarValue, shifted: ScalarValue) -> ScalarValue:
    """Compute sin(r) for |r| <= pi / 2, negated if the integer in `shifted` is odd."""
    square = r * r
    value = r * multiply_add(square, polynomial(square, HALF_WAVE), 1.0)
    return bits(bits(value) ^ (bits(shifted) << 63))


def sin(x: ScalarValue) -> ScalarValue:
    """Compute the sine."""
    shifted = multiply_add(x, 1.0 / math.pi, ROUNDING_SHIFT)
    ordinary = _wave(_without_half_pi(x, (shifted - ROUNDING_SHIFT) * 2.0), shifted)
    return rarely(_is_far(x), far_sin(x, "float32"), ordinary)


def cos(x: ScalarValue) -> ScalarValue:
    """Compute the cosine as the sine of x + pi / 2."""
    a = magnitude(x)
    shifted = multiply_add(a, 1.0 / math.pi, 0.5) + ROUNDING_SHIFT
    ordinary = _wave(
        _without_half_pi(a, multiply_add(shifted - ROUNDING_SHIFT, 2.0, -1.0)), shifted
    )
    return rarely(_is_far(x), far_cos(x, "float32"), ordinary)


def tan(x: ScalarValue) -> ScalarValue:
    """Compute the tangent."""
    shifted = multiply_add(x, 2.0 / math.pi, ROUNDING_SHIFT)
    r = _without_half_pi(x, shifted - ROUNDING_SHIFT)
    square = r * r
    up, down = r * polynomial(square, TAN), polynomial(square, TAN_DIVISOR)
    is_even = (bits(shifted) & 1) == 0
    ordinary = select(is_even, up, -down) / select(is_even, down, up)
    return rarely(_is_far(x), far_tan(x, "float32"), ordinary)


def arcsin(x: ScalarValue) -> ScalarValue:
    """Compute the inverse sine."""
    return scalar_circular.arcsin(x, ARCSIN)


def arccos(x: ScalarValue) -> ScalarValue:
    """Compute the inverse cosine."""
    return scalar_circular.arccos(x, ARCSIN)
