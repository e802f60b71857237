"""The most frequent elementary functions of networks, in float32 arithmetic alone.

Where tables can be looked up in registers, most functions are piecewise polynomials, and other
formulas compute what is far from 0; elsewhere these compute everything. The polynomials of the
formulas are minimax fits (Remez) of the functions in the comments above them. Where a step needs
more precision than float32 has, a comment explains it. tests/codegen/test_scalar_accuracy gives the
largest errors over all float32 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from mxrun.codegen import scalar_double
from mxrun.codegen.scalar_double import widened
from mxrun.codegen.scalar_instructions import (
    at_least,
    at_most,
    bits,
    copy_sign,
    fma,
    looks_up,
    magnitude,
    polynomial,
    rarely,
    reciprocal,
    reciprocal_root,
    round_down,
    scale,
    select,
)
from mxrun.codegen.scalar_parts import Pair
from mxrun.codegen.scalar_pieces import (
    PIECES,
    Ends,
    Function,
    Pieces,
    looked_up,
    octave_number,
    octave_table,
    piece,
    piecewise,
    table,
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
# (tanh(a) - a) / a^3 in a^2, for a <= TANH_NEAR.
TANH_NEAR = 0.8
TANH = (
    -0.33333298563957214,
    0.13332246243953705,
    -0.05385410040616989,
    0.02130846679210663,
    -0.007417290937155485,
    0.0015888301422819495,
)
# (log(1 + z) - z + z^2 / 2) / z^3 for z to e^-SOFTPLUS_NEAR, and
# (log(1 + e^x) - x / 2 - log(2)) / x^2 in x^2 for |x| <= SOFTPLUS_NEAR.
SOFTPLUS_NEAR = 0.58
LOG1P = (
    0.33333075046539307,
    -0.24991652369499207,
    0.19895680248737335,
    -0.15987473726272583,
    0.11699170619249344,
    -0.063992440700531,
    0.018003355711698532,
)
SOFTPLUS = (0.12499982863664627, -0.00520519632846117, 0.0003308581653982401)
# erf(x) / x - 1 in x^2, for |x| <= 0.95.
ERF = (
    0.12837916612625122,
    -0.3761262893676758,
    0.11283624917268753,
    -0.02685566432774067,
    0.005192210897803307,
    -0.000804756477009505,
    7.988239667611197e-05,
)
# log(1 - erf(x)), for x from 0.92 to 4. It is used from 0.95 on.
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
# The tables of sigmoid, softplus and expm1 have pieces about multiples of STEP. They end halfway
# between two of them. A straight line is added to some.
STEP, SIGMOID_END, SOFTPLUS_END, EXPM1_END = 0.25, 7.875, 7.375, 3.875
SOFTPLUS_LINE, EXPM1_LINE = 0.625, 0.375
# gelu's tables cover 0 to -5.355 in 31.5 steps; for the first 2.5 the line is x / 2. They are exact
# enough to -5.2, and for the difference to a large positive x to the end.
GELU_STEP, GELU_END, GELU_FAR, GELU_LINE = 0.17, 5.355, 5.2, 0.425
# The octaves of the tables of tanh and erfc end at 10.3, those of erf at 4.2.
TANH_SHIFT, ERFC_SHIFT, ERF_SHIFT = 0.718, 0.6875, 0.28125


def exp(x: ScalarValue) -> ScalarValue:
    """Compute e^x."""
    k, r = _reduced(at_most(at_least(x, -104.0), 89.0))
    return scale(polynomial(r, EXP), k)


def _exp_within(x: ScalarValue) -> ScalarValue:
    """Compute e^x for |x| <= 87."""
    biased = fma(x, LOG2_E, BIASED)
    k = biased - BIASED
    r = fma(k, -LN2_LOW, fma(k, -LN2_HIGH, x))
    return polynomial(r, EXP) * bits(bits(biased) << 23)


def expm1(x: ScalarValue) -> ScalarValue:
    """Compute e^x - 1."""
    far = _expm1_by_exponential(x)
    if not looks_up(x):
        return far
    # Near 0 the tables hold e^x - 1 - x.
    line = select(magnitude(x) < EXPM1_LINE, x, 0.0)
    usual = piecewise(x, _step(x), _expm1_pieces()) + line
    return rarely(~(magnitude(x) < EXPM1_END), far, usual)


def _expm1_by_exponential(x: ScalarValue) -> ScalarValue:
    k, r, rest = _exponential(at_most(at_least(x, -20.0), 89.0))
    # Half the power of two, which would overflow before the result does.
    half = scale(x.constant(0.5), k)
    less = half - 0.5
    total = fma(half, r, less)
    error = fma(half, r, less - total) + (half - less - 0.5)
    result = (total + fma(half, rest, error)) * 2.0
    return select(magnitude(x) < 2.0**-24, x, result)


def tanh(x: ScalarValue) -> ScalarValue:
    """Compute the hyperbolic tangent, which is 1 from 9.5 on."""
    a = at_most(magnitude(x), 9.5)
    if not looks_up(x):
        return copy_sign(_tanh_by_division(a), x)
    return copy_sign(piecewise(a, octave_number(a, TANH_SHIFT), _tanh_pieces()), x)


def _tanh_by_division(a: ScalarValue) -> ScalarValue:
    """Compute tanh(a) for a from 0 to 9.5: by a polynomial, or as 1 - 2 / (e^2a + 1)."""
    square = a * a
    near = fma(a * square, polynomial(square, TANH), a)
    return select(a < TANH_NEAR, near, 1.0 - 2.0 / (_exp_within(a + a) + 1.0))


def sigmoid(x: ScalarValue) -> ScalarValue:
    """Compute 1 / (1 + e^-x); for positive x it is 1 - sigmoid(-x)."""
    far = _sigmoid_by_exponential(x)
    if not looks_up(x):
        return far
    minus_a = at_least(-magnitude(x), -SIGMOID_END)
    share = piecewise(minus_a, _step(minus_a), _sigmoid_pieces())
    usual = select(x >= 0.0, 1.0 - share, share)
    return rarely(~(magnitude(x) < SIGMOID_END), far, usual)


def _sigmoid_by_exponential(x: ScalarValue) -> ScalarValue:
    """Compute sigmoid from e^|x| = 2^k * (1 + p), as 2^-k / (2^-k + 1 + p) for negative x."""
    k, r, rest = _exponential(at_most(magnitude(x), 104.0))
    power_of_two = scale(x.constant(1.0), -k)
    one = power_of_two + 1.0
    inverse = reciprocal(one + (r + rest))
    # The error of the product of the inverse and the sum's four terms.
    rest = rest + (power_of_two - (one - 1.0))
    error = fma(-inverse, rest, fma(-inverse, r, fma(-inverse, one, 1.0)))
    share = power_of_two * fma(inverse, error, inverse)
    return select(x >= 0.0, 1.0 - share, share)


def softplus(x: ScalarValue) -> ScalarValue:
    """Compute log(1 + e^x), for large x as x + softplus(-x)."""
    far = _softplus_by_exponential(x)
    if not looks_up(x):
        return far
    is_small = x < SOFTPLUS_LINE
    y = at_least(select(is_small, x, -x), -SOFTPLUS_END)
    usual = piecewise(y, _step(y), _softplus_pieces()) + select(is_small, 0.0, x)
    return rarely(~(magnitude(x) < SOFTPLUS_END), far, usual)


def _softplus_by_exponential(x: ScalarValue) -> ScalarValue:
    """Compute softplus as max(x, 0) + log(1 + z) with z = e^-|x| or, near 0, by a polynomial."""
    square = x * x
    near = fma(square, polynomial(square, SOFTPLUS), x * 0.5) + math.log(2.0)
    k, r, rest = _exponential(at_least(-magnitude(x), -104.0))
    p, power_of_two = r + rest, scale(x.constant(1.0), k)
    z = fma(power_of_two, p, power_of_two)
    z_rest = fma(power_of_two, p, power_of_two - z)
    # The slope of the logarithm is about 1 - 0.7 z.
    cubic = fma(z * z * z, polynomial(z, LOG1P), fma(z * -0.7, z_rest, z_rest))
    far = at_least(x, 0.0) + (z + fma(z * -0.5, z, cubic))
    return select(magnitude(x) < SOFTPLUS_NEAR, near, far)


def erf(x: ScalarValue) -> ScalarValue:
    """Compute the error function, which is 1 from 4 on."""
    a = at_most(magnitude(x), 4.0)
    if not looks_up(x):
        return copy_sign(_erf_by_exponent(a), x)
    d, (value, *slopes) = looked_up(a, octave_number(a, ERF_SHIFT), _erf_pieces())
    # In the piece that begins at 0, which holds erf(a) - a, the distance is a and the value 0; in
    # others the value is larger than the distance.
    return copy_sign(polynomial(d, (at_least(value, d), *slopes)), x)


def erfc(x: ScalarValue) -> ScalarValue:
    """Compute 1 - erf(x) from tables of erfc(a) * e^(a^2); from 10.06 on it is 0."""
    if not looks_up(x):
        return widened(scalar_double.erfc)(x)
    a = at_most(magnitude(x), 10.3)
    d, (value, *slopes) = looked_up(a, octave_number(a, ERFC_SHIFT), _erfc_pieces())
    slope = polynomial(d, slopes)
    scaled = fma(d, slope, value)
    far = _times_exponential((scaled, fma(d, slope, value - scaled)), (a, -a))
    return select(x < 0.0, 2.0 - far, far)


def _times_exponential(factor: Pair, exponent: tuple[ScalarValue, ScalarValue]) -> ScalarValue:
    """Compute (factor[0] + factor[1]) * e^(exponent[0] * exponent[1])."""
    (scaled, scaled_rest), (k, r, rest) = factor, _exponential_of_product(*exponent)
    result = fma(scaled, r, scaled)
    rest = fma(scaled, rest, fma(scaled_rest, r, scaled_rest))
    return scale(result + (fma(scaled, r, scaled - result) + rest), k)


def _erf_by_exponent(a: ScalarValue) -> ScalarValue:
    """Compute erf(a) for a from 0 to 4."""
    square = a * a
    series = fma(a, polynomial(square, ERF), a)
    return select(a < 0.95, series, 1.0 - _exp_within(polynomial(a, ERFC_LOG)))


def gelu(x: ScalarValue) -> ScalarValue:
    """Compute x * P(N < x), N standard normal; for large x it is x + gelu(-x)."""
    far = widened(scalar_double.gelu)(x)
    if not looks_up(x):
        return far
    minus_a = at_least(-magnitude(x), -GELU_END)
    number = bits(fma(minus_a, -1.0 / GELU_STEP, ROUNDING_SHIFT))
    # Near 0 the tables hold gelu(x) - x / 2, an even function.
    line = select(minus_a > -GELU_LINE, x * 0.5, at_least(x, 0.0))
    usual = piecewise(minus_a, number, _gelu_pieces()) + line
    return rarely(x < -GELU_FAR, far, usual)


def _step(x: ScalarValue) -> ScalarValue:
    """Return the number, in its lowest bits, of the multiple of `STEP` that is next to x."""
    return bits(x + ROUNDING_SHIFT * STEP)


def _step_pieces(functions: Callable[[int], Function], first: int, degree: int) -> Pieces:
    """Return tables about 32 multiples of `STEP`, from one on, by the last bits of their numbers.

    functions: returns what the tables approximate about a multiple.
    """
    numbers = sorted(range(first, first + PIECES), key=lambda n: n % PIECES)
    return table(piece(functions(n), ((n - 0.5) * STEP, (n + 0.5) * STEP), degree) for n in numbers)


@cache
def _sigmoid_pieces() -> Pieces:
    return _step_pieces(lambda n: lambda x: 1.0 / (1.0 + math.exp(-x)), -31, 4)


@cache
def _softplus_pieces() -> Pieces:
    return _step_pieces(lambda n: lambda x: math.log1p(math.exp(x)), -29, 4)


@cache
def _expm1_pieces() -> Pieces:
    return _step_pieces(
        lambda n: lambda x: math.expm1(x) - x * (abs(n * STEP) < EXPM1_LINE), -16, 5
    )


@cache
def _tanh_pieces() -> Pieces:
    """Return tables whose slope at 0 is exactly 1: the first piece is tanh(a) / a times a."""

    def first(ends: Ends) -> list[float]:
        return [0.0, 0.0, *piece(lambda a: math.tanh(a) / a if a else 1.0, ends, 3)[1:]]

    return octave_table(math.tanh, TANH_SHIFT, 4, first)


@cache
def _erf_pieces() -> Pieces:
    def first(ends: Ends) -> list[float]:
        return piece(lambda a: math.erf(a) - a, ends, 4)

    return octave_table(math.erf, ERF_SHIFT, 4, first)


@cache
def _erfc_pieces() -> Pieces:
    return octave_table(lambda a: math.erfc(a) * math.exp(a * a), ERFC_SHIFT, 5)


@cache
def _gelu_pieces() -> Pieces:
    """Return tables of gelu or, near 0, of the even function gelu(x) - x / 2, for steps below 0."""

    def even(x: float) -> float:
        return x * math.erf(x * math.sqrt(0.5)) / 2

    def negative(x: float) -> float:
        return x * math.erfc(-x * math.sqrt(0.5)) / 2

    rows = []
    for n in range(0, -32, -1):
        ends = (n - 0.5) * GELU_STEP, min(n + 0.5, 0.0) * GELU_STEP
        rows.append(piece(even if n >= -2 else negative, ends, 6))
    return table(rows)


def rsqrt(x: ScalarValue) -> ScalarValue:
    """Compute 1 / sqrt(x) by a step of Newton's method."""
    inverse = reciprocal_root(x)
    root = x * inverse
    error = fma(-inverse, fma(x, inverse, -root), fma(-inverse, root, 1.0))
    # The error is NaN where the result is 0 or infinite.
    return select(error == error, fma(inverse * 0.5, error, inverse), inverse)


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


def _exponential(x: ScalarValue) -> tuple[ScalarValue, ScalarValue, ScalarValue]:
    """Return integer k, r and a rest with e^x = 2^k * (1 + r + rest), without errors in r."""
    k = _rounded_exponent(x)
    r = fma(k, -LN2_HIGH, x)
    reduced = fma(k, -LN2_LOW, r)
    return k, r, fma(k, -LN2_LOW, reduced * reduced * polynomial(reduced, EXPM1))


def _exponential_of_product(
    x: ScalarValue, y: ScalarValue
) -> tuple[ScalarValue, ScalarValue, ScalarValue]:
    """Return the same for e^(x * y), whose exponent is not rounded."""
    product = x * y
    k = _rounded_exponent(product)
    high, low = fma(k, -LN2_HIGH, product), fma(k, -LN2_LOW, fma(x, y, -product))
    r = high + low
    return k, r, fma(r * r, polynomial(r, EXPM1), high - r + low)
