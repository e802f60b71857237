"""The elementary functions that networks live on, in float32 arithmetic alone.

Every function is straight-line code without a branch. The polynomials are minimax fits (Remez) of
the functions named beside them; where a step needs more than float32 carries, the comment says
how it gets it. Largest errors over all float32 numbers stand in tests/backend/test_scalar_accuracy.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.polynomial import chebyshev

from mxrun.backend.scalar_machine import (
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
    scale,
    select,
    square_root,
)
from mxrun.backend.scalar_value import Value

LOG2_E = math.log2(math.e)
# log(2) in two parts: products of the first with whole numbers to 2^15 are exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
# 1.5 * 2^23: adding it leaves a whole number in the lowest bits; with 127 more, these are the
# exponent of a power of two.
WHOLE = 12582912.0
BIASED = WHOLE + 127.0
POSITIVE_LN2_HIGH, POSITIVE_LN2_LOW = 0.69314575195312, 1.4286068203094e-06

# e^r on |r| <= log(2) / 2.
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
# erf(x) / x - 1 by x^2, to |x| = 0.92.
ERF = (
    0.12837915122509003,
    -0.3761250078678131,
    0.11281877011060715,
    -0.026768580079078674,
    0.004995853640139103,
    -0.0006003800081089139,
)
# log(1 - erf(x)) from 0.92 to 4.
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
# With u = (a - 2.5) / (a + 2.5): P(a normal variable < -a) * e^(a^2 / 2) * (a + 2.5), to 14.7.
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


def exp(x: Value) -> Value:
    """e^x."""
    k, r = _reduced(at_most(at_least(x, -104.0), 89.0))
    return scale(polynomial(r, EXP), k)


def expm1(x: Value) -> Value:
    """e^x - 1."""
    k, r = _reduced(at_most(at_least(x, -20.0), 89.0))
    power = fma(r * r, polynomial(r, EXPM1), r)
    # Half the power of two, which would overflow where the result does not yet.
    half = scale(x.constant(0.5), k)
    result = fma(half, power, half - 0.5) * 2.0
    return select(magnitude(x) < 2.0**-24, x, result)


def log(x: Value) -> Value:
    """The natural logarithm."""
    k, m = exponent_and_mantissa(x)
    f = m - 1.0
    square = f * f
    # Both parts of log(2) are positive, so that an infinite k does not become NaN.
    total = fma(k, POSITIVE_LN2_LOW, f * square * polynomial(f, LOG))
    return fma(k, POSITIVE_LN2_HIGH, f + fma(square, -0.5, total))


def tanh(x: Value) -> Value:
    """The hyperbolic tangent: of h = (e^2|x| - 1) / 2 it is h / (h + 1), and 1 from 9.25 on."""
    a = at_most(magnitude(x), 9.25)
    # As in _reduced and _expm1, of 2 a and of half of everything.
    biased = fma(a, 2.0 * LOG2_E, BIASED)
    k = biased - BIASED
    r = fma(k, -0.5 * LN2_LOW, fma(k, -0.5 * LN2_HIGH, a))
    power = fma(r * r, polynomial(r, TANH), r)
    whole = bits(bits(biased) << 23)
    h = fma(whole, power, fma(whole, 0.5, -0.5))
    result = h / (h + 1.0)
    # h / (h + 1) = h - h * h / (h + 1), where rounding counts less as long as h is small.
    return copy_sign(select(h < 0.5, fma(-h, result, h), result), x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + e^-x), of which e^x / (1 + e^x) is the same and does not overflow below zero."""
    z = _decay(x)
    negative = x < 0.0
    result = select(negative, z, 1.0) / (z + 1.0)
    # z / (1 + z) = z - z * z / (1 + z) forgives what rounding does to the sum and the quotient.
    return select(negative, fma(-z, result, z), result)


def softplus(x: Value) -> Value:
    """log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)."""
    z = _decay(x)
    return at_least(x, 0.0) + fma(z * z, polynomial(z, LOG1P), z)


def erf(x: Value) -> Value:
    """The error function."""
    square = x * x
    near = fma(x, polynomial(square, ERF), x)
    exponent = polynomial(at_most(magnitude(x), 4.0), ERFC_LOG)
    biased = fma(exponent, LOG2_E, BIASED)
    k = biased - BIASED
    r = fma(k, -LN2_LOW, fma(k, -LN2_HIGH, exponent))
    far = 1.0 - polynomial(r, EXP) * bits(bits(biased) << 23)
    return copy_sign(select(magnitude(x) < 0.92, near, far), x)


def gelu(x: Value) -> Value:
    """x * P(a normal variable < x) = max(x, 0) - a * P(a normal variable < -a), where a = |x|."""
    minus_a = at_least(-magnitude(x), -14.7)
    half = minus_a * -0.5
    k = _rounded_exponent(half * minus_a)
    # a * a takes part without being rounded.
    r = fma(k, -LN2_LOW, fma(half, minus_a, k * -LN2_HIGH))
    scaled, rest = _scaled_tail(minus_a)
    # (scaled + rest) * e^r.
    power = fma(r * r, polynomial(r, EXPM1), r)
    tail = scale(scaled + fma(scaled + rest, power, rest), k)
    return copy_sign(select(x < 0.0, tail, x + tail), x)


def _scaled_tail(minus_a: Value) -> tuple[Value, Value]:
    """-a * P(a normal variable < -a) * e^(a^2 / 2) as a large and a small part."""
    if looks_up(minus_a):
        # Leaves multiples of 1/2, and their number in the lowest bits.
        number = bits(1.5 * 2.0**22 - minus_a)
        centre, first, *others = (lookup(number, entries) for entries in _tail_tables())
        d = -minus_a - centre
        scaled = minus_a * first
        rest = fma(minus_a, first, -scaled)
        return scaled, fma(minus_a * d, polynomial(d, others), rest)
    total = 2.5 - minus_a
    inverted = 1.0 / total
    scaled = minus_a * inverted * polynomial(fma(inverted, -5.0, 1.0), NORMAL_TAIL)
    # How far inverted * (a + 2.5) is from 1; the tail moves by about 1.8 times as much.
    error = fma(2.5 - total - minus_a, -inverted, fma(-total, inverted, 1.0))
    return scaled, scaled * error * 1.8


@cache
def _tail_tables() -> list[tuple[float, ...]]:
    """Numbers a, then the coefficients, by powers of d, of `_tail_series` at a + d, |d| <= 1/4.

    a is about 0, 1/2, 1, ... 31/2: there where the first coefficient is almost a float32 number,
    so that it loses nothing (Gal's accurate tables).
    """
    rows = []
    for number in range(32):
        near = np.float32(number / 2)
        steps = range(128 if number else 1)
        centre = min((float(near - k * np.spacing(near)) for k in steps), key=_rounding)
        rows.append([centre, *_tail_series(centre)])
    return [tuple(np.float32(column).tolist()) for column in np.array(rows).T]


def _tail(a: float) -> float:
    """P(a normal variable < -a) * e^(a^2 / 2)."""
    return math.exp(a * a / 2) * math.erfc(a * math.sqrt(0.5)) / 2


def _rounding(a: float) -> float:
    """What rounding to float32 does to `_tail`, relative to it."""
    return abs(float(np.float32(_tail(a))) / _tail(a) - 1.0)


def _tail_series(a: float) -> list[float]:
    """The first six powers of `_tail` at a.

    Taylor's series, of f' = a f - 1 / sqrt(2 pi), to the ninth power, cut short by Chebyshev's.
    """
    powers = 0.25 ** np.arange(10)
    series = [_tail(a)]
    series.append(a * series[0] - 1 / math.sqrt(2 * math.pi))
    for n in range(1, 9):
        series.append((a * series[n] + series[n - 1]) / (n + 1))
    kept = chebyshev.poly2cheb(np.array(series) * powers)[:7]
    shortened: list[float] = (chebyshev.cheb2poly(kept) / powers[:7]).tolist()
    # The first as it is: what it would change is far below float32's last place.
    return [series[0], *shortened[1:]]


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x)."""
    return 1.0 / square_root(x)


def _rounded_exponent(x: Value) -> Value:
    """x / log(2) as a whole number."""
    return fma(x, LOG2_E, WHOLE) - WHOLE


def _reduced(x: Value) -> tuple[Value, Value]:
    """k and r with x = k * log(2) + r, k whole, |r| <= log(2) / 2."""
    k = _rounded_exponent(x)
    return k, fma(k, -LN2_LOW, fma(k, -LN2_HIGH, x))


def _decay(x: Value) -> Value:
    """e^-|x|."""
    k, r = _reduced(at_least(-magnitude(x), -104.0))
    return scale(polynomial(r, EXP), k)
