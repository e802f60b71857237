"""The elementary functions that networks live on, in float32 arithmetic alone.

Every function is straight-line code without a branch. The polynomials are minimax fits (Remez) of
the functions named beside them; where a step needs more than float32 carries, the comment says
how it gets it. Largest errors over all float32 numbers stand in tests/backend/test_scalar_accuracy.
"""

from __future__ import annotations

import math

from mxrun.backend.scalar_machine import (
    at_least,
    at_most,
    bits,
    copy_sign,
    fma,
    magnitude,
    polynomial,
    select,
    square_root,
)
from mxrun.backend.scalar_value import Value

LOG2_E = math.log2(math.e)
# log(2) in two parts: products of the first with whole numbers to 2^15 are exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
# Adding it leaves a whole number in the lowest bits: 1.5 * 2^23.
WHOLE = 12582912.0
ONE_BITS = 0x3F800000
ROOT_HALF_BITS = 0x3F3504F3

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
# (log(1 + f) - f + f^2 / 2) / f^3 for 1 + f from sqrt(1/2) to sqrt(2).
LOG = (
    0.3333333134651184,
    -0.250008225440979,
    0.20001259446144104,
    -0.16623345017433167,
    0.14201074838638306,
    -0.13159552216529846,
    0.12765660881996155,
    -0.07641036063432693,
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
# (tanh(x) / x - 1) / x^2 by x^2, to |x| = 0.625.
TANH = (
    -0.3333328068256378,
    0.13331405818462372,
    -0.05373651534318924,
    0.02062816731631756,
    -0.0056922961957752705,
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
# With u = (a - 3) / (a + 3): P(a normal variable < -a) * exp(a^2 / 2) * (a + 3), to a = 14.7.
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


def exp(x: Value) -> Value:
    """e^x."""
    return _scaled_exp(at_most(at_least(x, -104.0), 89.0))


def expm1(x: Value) -> Value:
    """e^x - 1."""
    z = at_most(at_least(x, -20.0), 89.0)
    shifted, r = _reduced(z)
    power = fma(r * r, polynomial(r, EXPM1), r)
    # Half the power of two, which would overflow where the result does not yet.
    half = bits((bits(shifted) << 23) + (ONE_BITS - (1 << 23)))
    result = fma(half, power, half - 0.5) * 2.0
    return select(magnitude(x) < 2.0**-24, x, result)


def log(x: Value) -> Value:
    """The natural logarithm."""
    small = x < 2.0**-126
    normal = select(small, x * 2.0**23, x)
    above = bits(normal) - ROOT_HALF_BITS
    exponent = (above >> 23).convert("float32") - select(small, x.constant(23.0), 0.0)
    f = bits((above & 0x7FFFFF) + ROOT_HALF_BITS) - 1.0
    square = f * f
    total = fma(exponent, LN2_LOW, f * square * polynomial(f, LOG))
    total = fma(exponent, LN2_HIGH, f + fma(square, -0.5, total))
    limits = select(x == 0.0, x.constant(-math.inf), math.nan)
    return select(x > 0.0, select(x < math.inf, total, x), limits)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent."""
    a = magnitude(x)
    square = x * x
    near = fma(x * square, polynomial(square, TANH), x)
    # 1 - 2 / (e^2a + 1), which is 1 from here on.
    far = 1.0 - 2.0 / (_normal_exp(at_most(a + a, 18.5)) + 1.0)
    return select(a < 0.625, near, copy_sign(far, x))


def sigmoid(x: Value) -> Value:
    """1 / (1 + e^-x), of which e^x / (1 + e^x) is the same and does not overflow below zero."""
    z = _scaled_exp(at_least(-magnitude(x), -104.0))
    return select(x < 0.0, z, 1.0) / (z + 1.0)


def softplus(x: Value) -> Value:
    """log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)."""
    z = _scaled_exp(at_least(-magnitude(x), -104.0))
    return at_least(x, 0.0) + fma(z * z, polynomial(z, LOG1P), z)


def erf(x: Value) -> Value:
    """The error function."""
    square = x * x
    near = fma(x, polynomial(square, ERF), x)
    a = at_most(magnitude(x), 4.0)
    far = 1.0 - _normal_exp(polynomial(a, ERFC_LOG))
    return select(a < 0.92, near, copy_sign(far, x))


def gelu(x: Value) -> Value:
    """x * P(a normal variable < x) = max(x, 0) - |x| * P(a normal variable < -|x|)."""
    a = at_most(magnitude(x), 14.7)
    inverse = 1.0 / (a + 3.0)
    tail = a * inverse * polynomial((a - 3.0) * inverse, NORMAL_TAIL)
    half = a * -0.5
    exponent = half * a
    # What rounding took from the exponent, which is up to 108.
    lost = fma(half, a, -exponent)
    shifted, r = _reduced(at_least(exponent, -110.0))
    tail = _scaled(tail * polynomial(r + lost, EXP), shifted)
    return select(x < 0.0, -tail, x - tail)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x)."""
    return 1.0 / square_root(x)


def _reduced(x: Value) -> tuple[Value, Value]:
    """k + WHOLE and r with x = k * log(2) + r, k whole, |r| <= log(2) / 2."""
    shifted = fma(x, LOG2_E, WHOLE)
    k = shifted - WHOLE
    return shifted, fma(k, -LN2_LOW, fma(k, -LN2_HIGH, x))


def _normal_exp(x: Value) -> Value:
    """e^x where neither it nor its power of two leaves the normal numbers."""
    shifted, r = _reduced(x)
    return polynomial(r, EXP) * bits((bits(shifted) << 23) + ONE_BITS)


def _scaled_exp(x: Value) -> Value:
    """e^x, of numbers from -104 to 89."""
    shifted, r = _reduced(x)
    return _scaled(polynomial(r, EXP), shifted)


def _scaled(x: Value, shifted: Value) -> Value:
    """x * 2^k, of k + WHOLE: two factors, because one alone may be no normal number."""
    both = bits(shifted)
    first = both >> 1
    second = both - first
    return x * bits((first << 23) + ONE_BITS) * bits((second << 23) + ONE_BITS)
