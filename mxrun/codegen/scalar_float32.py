"""The most frequent elementary functions of networks, in float32 arithmetic alone.

Every function is straight-line code without branches. The polynomials are minimax fits (Remez) of
the functions in the comments above them. Where a step needs more precision than float32 has, a
comment explains it. tests/codegen/test_scalar_accuracy gives the largest errors over all float32
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
from numpy.polynomial import Chebyshev, Polynomial

from mxrun.codegen.scalar_instructions import (
    at_least,
    at_most,
    bits,
    copy_sign,
    exponent_and_mantissa,
    fma,
    looks_up,
    lookup,
    magnitude,
    polynomial,
    rarely,
    round_down,
    scale,
    select,
    square_root,
)
from mxrun.codegen.scalar_remainder import long_rest, with_divisor_sign
from mxrun.codegen.scalar_value import ScalarValue

LOG2_E = math.log2(math.e)
# log(2) in two parts: products of the first with integers up to 2^15 are exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
# 1.5 * 2^23: adding it leaves an integer in the lowest bits; with 127 more, these are the exponent
# of a power of two.
ROUNDING_SHIFT = 12582912.0
BIASED = ROUNDING_SHIFT + 127.0
POSITIVE_LN2_HIGH, POSITIVE_LN2_LOW = 0.69314575195312, 1.4286068203094e-06

# e^r for |r| <= log(2) / 2.
EXP = (
    1.0,
    1.0,
    0.4999999403953552,
    0.16666516661643982,
    0.04166810214519501,
    0.008369192481040955,
    0.001383890281431377,
)
# (e^r - 1 - r) / r^2.
EXPM1 = (
    0.5,
    0.1666666567325592,
    0.04166646674275398,
    0.008333642967045307,
    0.001393504673615098,
    0.0001966453273780644,
)
# (e^2r - 1 - 2 r) / (2 r^2).
TANH = tuple(number * 2.0 ** (i + 1) for i, number in enumerate(EXPM1))
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
# (log(1 + z) - z) / z^2 on [0, 1].
LOG1P = (
    -0.49999988079071045,
    0.33332714438438416,
    -0.24988864362239838,
    0.19899621605873108,
    -0.16135157644748688,
    0.12479481101036072,
    -0.08323805034160614,
    0.042113907635211945,
    -0.013691186904907227,
    0.0020844400860369205,
)
# erf(x) / x - 1 in x^2, for |x| <= 0.92.
ERF = (
    0.12837915122509003,
    -0.3761250078678131,
    0.11281877011060715,
    -0.026768580079078674,
    0.004995853640139103,
    -0.0006003800081089139,
)
# log(1 - erf(x)), for x from 0.92 to 4.
ERFC_LOG = (
    0.00012784203863702714,
    -1.1292906999588013,
    -0.633795440196991,
    -0.10779499262571335,
    0.02481369860470295,
    -0.004059030208736658,
    0.0004124173428863287,
    -1.9303643057355657e-05,
)
# P(N < -a) * e^(a^2 / 2) * (a + 2.5) in u = (a - 2.5) / (a + 2.5), for a to 14.7, N standard
# normal.
NORMAL_TAIL = (
    0.7066566601235555,
    -0.43369210817043896,
    0.13198697387545677,
    0.00923820479909659,
    -0.01638571050806794,
    -0.0016161074713957934,
    0.0025179087468858866,
    0.0007219259513155183,
    -0.0002901498099683231,
    -0.00018882532060868852,
    -2.2585249949919247e-05,
)
# x * P(N < x) * e^(x^2 / 2) + 51 / 128 in 1 / x^2, for x from -14.7 to -5.
NORMAL_FAR = (
    -0.0005047441579406065,
    0.398925910698579,
    -1.194087372754908,
    5.759403674240219,
    -31.83888660621296,
    118.44820690428763,
)
# gelu's tables cover 0 to -5.355 in 31.5 steps.
GELU_STEP, GELU_END = 0.17, 5.355
TANH_SHIFT, ERF_SHIFT = 0.6875, 0.28125
# The slope of erf at 0 minus 9/8.
ERF_REST = 2 / math.sqrt(math.pi) - 1.125

Array = npt.NDArray[np.float64]
Pieces = list[tuple[float, ...]]


def exp(x: ScalarValue) -> ScalarValue:
    """Compute e^x."""
    k, r = _reduced(at_most(at_least(x, -104.0), 89.0))
    return scale(polynomial(r, EXP), k)


def expm1(x: ScalarValue) -> ScalarValue:
    """Compute e^x - 1."""
    k, r = _reduced(at_most(at_least(x, -20.0), 89.0))
    power = fma(r * r, polynomial(r, EXPM1), r)
    # Half the power of two, which would overflow before the result does.
    half = scale(x.constant(0.5), k)
    result = fma(half, power, half - 0.5) * 2.0
    return select(magnitude(x) < 2.0**-24, x, result)


def log(x: ScalarValue) -> ScalarValue:
    """Compute the natural logarithm."""
    k, m = exponent_and_mantissa(x)
    f = m - 1.0
    square = f * f
    # Both parts of log(2) are positive, so that an infinite k does not give NaN.
    total = fma(k, POSITIVE_LN2_LOW, f * square * polynomial(f, LOG))
    return fma(k, POSITIVE_LN2_HIGH, f + fma(square, -0.5, total))


def tanh(x: ScalarValue) -> ScalarValue:
    """Compute the hyperbolic tangent, which is 1 from 9.5 on."""
    a = at_most(magnitude(x), 9.5)
    if not looks_up(x):
        return copy_sign(_tanh_by_division(a), x)
    number = _octave_piece(a, TANH_SHIFT)
    return copy_sign(_piecewise(a, number, _tanh_pieces()), x)


def _tanh_by_division(a: ScalarValue) -> ScalarValue:
    """Compute tanh(a), a >= 0, as h / (h + 1) with h = (e^2a - 1) / 2."""
    # The reduction of `_reduced` and `expm1` for 2 a, with every term halved.
    biased = fma(a, 2.0 * LOG2_E, BIASED)
    k = biased - BIASED
    r = fma(k, -0.5 * LN2_LOW, fma(k, -0.5 * LN2_HIGH, a))
    power = fma(r * r, polynomial(r, TANH), r)
    power_of_two = bits(bits(biased) << 23)
    h = fma(power_of_two, power, fma(power_of_two, 0.5, -0.5))
    result = h / (h + 1.0)
    # h / (h + 1) = h - h * h / (h + 1), which is less sensitive to rounding for small h.
    return select(h < 0.5, fma(-h, result, h), result)


def sigmoid(x: ScalarValue) -> ScalarValue:
    """Compute 1 / (1 + e^-x), for negative x as e^x / (1 + e^x), which does not overflow."""
    z = _decay(x)
    negative = x < 0.0
    result = select(negative, z, 1.0) / (z + 1.0)
    # z / (1 + z) = z - z * z / (1 + z), which is less sensitive to the rounding of sum and
    # quotient.
    return select(negative, fma(-z, result, z), result)


def softplus(x: ScalarValue) -> ScalarValue:
    """Compute log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)."""
    z = _decay(x)
    return at_least(x, 0.0) + fma(z * z, polynomial(z, LOG1P), z)


def erf(x: ScalarValue) -> ScalarValue:
    """Compute the error function, which is 1 from 4 on."""
    a = at_most(magnitude(x), 4.0)
    if not looks_up(x):
        return copy_sign(_erf_by_exponent(a), x)
    number = _octave_piece(a, ERF_SHIFT)
    return copy_sign(fma(a, ERF_REST, _piecewise(a, number, _erf_pieces())), x)


def _erf_by_exponent(a: ScalarValue) -> ScalarValue:
    """Compute erf(a) for a from 0 to 4."""
    square = a * a
    series = fma(a, polynomial(square, ERF), a)
    exponent = polynomial(a, ERFC_LOG)
    biased = fma(exponent, LOG2_E, BIASED)
    k = biased - BIASED
    r = fma(k, -LN2_LOW, fma(k, -LN2_HIGH, exponent))
    far = 1.0 - polynomial(r, EXP) * bits(bits(biased) << 23)
    return select(a < 0.92, series, far)


def gelu(x: ScalarValue) -> ScalarValue:
    """Compute x * P(N < x) = max(x, 0) - a * P(N < -a), where a = |x| and N is standard normal."""
    if not looks_up(x):
        return _gelu_by_division(x)
    minus_a = at_least(-magnitude(x), -GELU_END)
    number = bits(fma(minus_a, -1.0 / GELU_STEP, ROUNDING_SHIFT))
    share = _piecewise(minus_a, number, _normal_pieces())
    usual = select(x < 0.0, minus_a * share, fma(minus_a, share, x))
    return rarely(x < -GELU_END, _gelu_far_below(x), usual)


def _gelu_far_below(x: ScalarValue) -> ScalarValue:
    """Compute gelu for x below -5, where x * P(N < x) * e^(x^2 / 2) is a function of 1 / x^2."""
    z = at_least(x, -14.7)
    k, r = _minus_half_square(z)
    scaled = polynomial(1.0 / (z * z), NORMAL_FAR) - 51 / 128
    power = fma(r * r, polynomial(r, EXPM1), r)
    return scale(fma(scaled, power, scaled), k)


def _gelu_by_division(x: ScalarValue) -> ScalarValue:
    """Compute gelu on machines without table lookup in registers."""
    minus_a = at_least(-magnitude(x), -14.7)
    k, r = _minus_half_square(minus_a)
    total = 2.5 - minus_a
    inverted = 1.0 / total
    scaled = minus_a * inverted * polynomial(fma(inverted, -5.0, 1.0), NORMAL_TAIL)
    # Error of inverted * (a + 2.5) - 1; the tail changes by about 1.8 times as much.
    error = fma(2.5 - total - minus_a, -inverted, fma(-total, inverted, 1.0))
    rest = scaled * error * 1.8
    # (scaled + rest) * e^r.
    power = fma(r * r, polynomial(r, EXPM1), r)
    tail = scale(scaled + fma(scaled + rest, power, rest), k)
    return copy_sign(select(x < 0.0, tail, x + tail), x)


def _minus_half_square(x: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Return k and r with -x^2 / 2 = k * log(2) + r, like `_reduced`; the square is not rounded."""
    half = x * -0.5
    k = _rounded_exponent(half * x)
    return k, fma(k, -LN2_LOW, fma(half, x, k * -LN2_HIGH))


def _piecewise(x: ScalarValue, number: ScalarValue, pieces: Pieces) -> ScalarValue:
    """Compute the function that the tables approximate, for x in the piece of this number."""
    centre, *coefficients = (lookup(number, entries) for entries in pieces)
    return polynomial(x - centre, coefficients)


def _pieces(
    function: Callable[[float], float], ends: Sequence[tuple[float, float]], degree: int
) -> Pieces:
    """Return the centre of each interval and the coefficients of a polynomial about it.

    The coefficients approximate the function in powers of the distance from the centre. The centre
    is chosen where the function is almost a float32 number, so that the first coefficient loses
    nothing (Gal's accurate tables); it is 0 for an interval that ends there. The other coefficients
    interpolate at Chebyshev nodes.
    """
    rows = []
    for low, high in ends:
        middle = np.float32((low + high) / 2 if low * high else 0.0)
        centres = [float(middle + k * np.spacing(middle)) for k in range(128 if middle else 1)]
        centre = min(centres, key=lambda x: _rounding(function(x)))
        domain = (low - centre, high - centre)
        line = Chebyshev.interpolate(_slope(function, centre), degree - 1, domain)
        others = line.convert(kind=Polynomial).coef
        rows.append([centre, function(centre), *others, *[0.0] * (degree - others.size)])
    return [tuple(np.float32(column).tolist()) for column in np.array(rows).T]


def _slope(function: Callable[[float], float], centre: float) -> Callable[[Array], Array]:
    """Return the difference quotient (f(centre + d) - f(centre)) / d as a function of d."""
    value = function(centre)
    return lambda d: np.array([(function(centre + step) - value) / step for step in d.tolist()])


def _rounding(number: float) -> float:
    """Return the relative error of rounding a number to float32."""
    return abs(float(np.float32(number)) / number - 1.0) if number else 0.0


@cache
def _normal_pieces() -> Pieces:
    """Return tables of P(N < x) about 0, -1, ... -31 steps, N standard normal."""
    ends = [(-(n + 0.5) * GELU_STEP, -max(n - 0.5, 0) * GELU_STEP) for n in range(32)]
    return _pieces(lambda x: math.erfc(-x * math.sqrt(0.5)) / 2, ends, 6)


@cache
def _tanh_pieces() -> Pieces:
    """Return tables of tanh for the pieces of `_octave_piece`."""
    return _pieces(math.tanh, _octave_ends(TANH_SHIFT), 4)


@cache
def _erf_pieces() -> Pieces:
    """Return tables of erf(a) - ERF_REST * a for the pieces of `_octave_piece`."""
    return _pieces(lambda a: math.erf(a) - ERF_REST * a, _octave_ends(ERF_SHIFT), 4)


def _octave_piece(a: ScalarValue, shift: float) -> ScalarValue:
    """Return the number of a's piece: 8 per octave of a + shift, over four octaves.

    The first octave is that of the shift.
    """
    return bits(a + shift) >> 20


def _octave_ends(shift: float) -> list[tuple[float, float]]:
    """Return the ends of the 32 pieces, indexed like `_octave_piece`.

    The index consists of the lowest bits of the exponent and the highest of the fraction.
    """
    ends = []
    for number in range(32):
        octave, part = divmod(number, 8)
        # The exponent field is biased by 127.
        exponent = math.floor(math.log2(shift))
        exponent += (octave - exponent - 127) % 4
        if (8 + part) * 2.0 ** (exponent - 3) < shift:
            exponent += 4
        width = 2.0 ** (exponent - 3)
        ends.append(((8 + part) * width - shift, (9 + part) * width - shift))
    return ends


def rsqrt(x: ScalarValue) -> ScalarValue:
    """Compute 1 / sqrt(x)."""
    return 1.0 / square_root(x)


def mod(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """Compute x - floor(x / y) * y."""
    # A quotient that only becomes an integer by rounding may be one too large; `towards` corrects
    # that.
    quotient = round_down(x / y)
    usual = (magnitude(quotient) < 2.0**24) & (magnitude(y) < math.inf)
    # float64 numbers hold the remainder exactly.
    long = long_rest(x.convert("float64"), y.convert("float64"), "float32").convert("float32")
    return with_divisor_sign(rarely(~usual, long, fma(-quotient, y, x)), y)


def _rounded_exponent(x: ScalarValue) -> ScalarValue:
    """Return x / log(2) rounded to an integer."""
    return fma(x, LOG2_E, ROUNDING_SHIFT) - ROUNDING_SHIFT


def _reduced(x: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Return integer k and r with x = k * log(2) + r, |r| <= log(2) / 2."""
    k = _rounded_exponent(x)
    return k, fma(k, -LN2_LOW, fma(k, -LN2_HIGH, x))


def _decay(x: ScalarValue) -> ScalarValue:
    """Compute e^-|x|."""
    k, r = _reduced(at_least(-magnitude(x), -104.0))
    return scale(polynomial(r, EXP), k)
