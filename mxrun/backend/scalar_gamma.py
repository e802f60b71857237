"""Gamma, gammaln and digamma of float32 numbers, computed in float64.

The polynomials interpolate at Chebyshev nodes with errors of about 1e-15, because the results near
the functions' zeros are small differences.
"""

from __future__ import annotations

import math

from mxrun.backend.scalar_double import exp, positive_log, sin_cos
from mxrun.backend.scalar_instructions import (
    copy_sign,
    fma,
    magnitude,
    nearest_even,
    polynomial,
    rarely,
    select,
)
from mxrun.backend.scalar_value import ScalarValue

# Like in scalar_double, to float64 precision.
LOG = (
    0.6666666666666666,
    0.4000000000000089,
    0.2857142857079543,
    0.2222222239356661,
    0.18181795442371984,
    0.1538625044794019,
    0.13268485680654427,
    0.13089629160674623,
)
# log(gamma(x)) / (x - 2) in x - 2.25, for x from 1.5 to 3.
LGAMMA = (
    0.4994868595695864,
    0.2922384282165963,
    -0.054295403852151404,
    0.014688323716956421,
    -0.004662626671058339,
    0.0016148854317092195,
    -0.0005901656791905979,
    0.00022351992532366254,
    -8.680576416950887e-05,
    3.433739842969846e-05,
    -1.3772295674650275e-05,
    5.578373905818e-06,
    -2.2813164874286294e-06,
    9.5500189839623e-07,
    -3.9578719362148153e-07,
    1.3974788201204312e-07,
    -5.829734731441334e-08,
    4.671586095832982e-08,
    -1.9720735863772433e-08,
)
# x * (log(gamma(x)) - (x - 1/2) log(x) + x - log(2 pi) / 2) in 1 / x^2, for x from 3 on.
STIRLING = (
    0.0833333333333333,
    -0.0027777777777198706,
    0.0007936507724234067,
    -0.0005952350113118343,
    0.0008415163778136668,
    -0.0019068288114279443,
    0.006092364447572614,
    -0.023023388614372777,
    0.0813307211132798,
    -0.2070933006751568,
    0.26180852870866445,
)
# x^2 * (log(x) - 1 / (2 x) - digamma(x)) in 1 / x^2, for x from 8 on.
DIGAMMA = (
    0.08333333333333333,
    -0.008333333333278636,
    0.0039682539119537084,
    -0.0041666448230497,
    0.007571689620283902,
    -0.020697987372370493,
    0.06362150587634356,
)

# (sin(x) / x - 1) / x^2 in x^2, for |x| <= pi / 2.
HALF_WAVE = (
    -0.1666666666666665,
    0.008333333333325933,
    -0.00019841269836469,
    2.7557318055682276e-06,
    -2.5051972921308604e-08,
    1.6050972236454424e-10,
    -7.40805479376894e-13,
)


def _sin_cos_pi(x: ScalarValue) -> tuple[ScalarValue, ScalarValue, ScalarValue]:
    """Reduce pi * x by the nearest multiple of pi / 2.

    Return whether the multiple is odd, and sine and cosine of the remainder.
    """
    part = x - nearest_even(x)
    quarter = nearest_even(part + part)
    sine, cosine = sin_cos((part - quarter * 0.5) * math.pi)
    return quarter != 0.0, sine, cosine


def _sin_pi(x: ScalarValue) -> ScalarValue:
    """Compute sin(pi * x)."""
    part = x - nearest_even(x * 0.5) * 2.0
    mirrored = copy_sign(x.constant(1.0), part) - part
    angle = select(magnitude(part) > 0.5, mirrored, part) * math.pi
    square = angle * angle
    return angle * fma(square, polynomial(square, HALF_WAVE), 1.0)


def gammaln(x: ScalarValue) -> ScalarValue:
    """Compute log |gamma(x)|, below 1/2 by gamma(x) gamma(1 - x) = pi / sin(pi x)."""
    mirrored = x < 0.5
    value = _gammaln_from_half(select(mirrored, 1.0 - x, x))
    wave = magnitude(_sin_pi(x))
    reflected = math.log(math.pi) - positive_log(wave, LOG) - value
    value = rarely(mirrored, select(wave == 0.0, math.inf, reflected), value)
    return select(x == x, select(magnitude(x) == math.inf, math.inf, value), x)


def _gammaln_from_half(y: ScalarValue) -> ScalarValue:
    """Compute log(gamma(y)) for finite y from 1/2 on."""
    logarithm = positive_log(y, LOG)
    early = y < 1.5
    shifted = select(early, y + 1.0, y)
    low = (shifted - 2.0) * polynomial(shifted - 2.25, LGAMMA)
    low = low - select(early, logarithm, 0.0)
    inverse = 1.0 / y
    high = fma(y - 0.5, logarithm, 0.5 * math.log(2.0 * math.pi) - y)
    high = fma(inverse, polynomial(inverse * inverse, STIRLING), high)
    return rarely(y >= 3.0, high, low)


def gamma(x: ScalarValue) -> ScalarValue:
    """Compute the gamma function, below 1/2 like gammaln; NaN at negative integers."""
    mirrored = x < 0.5
    value = exp(_gammaln_from_half(select(mirrored, 1.0 - x, x)))
    wave = _sin_pi(x)
    reflected = select((wave == 0.0) & (x < 0.0), math.nan, math.pi / (wave * value))
    value = select(x < math.inf, rarely(mirrored, reflected, value), x)
    return select(x == 0.0, copy_sign(x.constant(math.inf), x), value)


def digamma(x: ScalarValue) -> ScalarValue:
    """Compute the derivative of log(gamma(x)); NaN at negative integers."""
    mirrored = x < 0.0
    y = select(mirrored, 1.0 - x, x)
    early = y < 8.0
    # Sum of 1 / (y + k) for k from 0 to 7: each pair of terms is (2 y + 7) / q.
    a, b, c, d = ((y + k) * (y + (7.0 - k)) for k in (0.0, 1.0, 2.0, 3.0))
    numerator = fma((a + b) * c, d, (c + d) * (a * b))
    sum_of_steps = (y + y + 7.0) * numerator / ((a * b) * (c * d))
    far = select(early, y + 8.0, y)
    inverse = 1.0 / far
    square = inverse * inverse
    value = positive_log(far, LOG) - inverse * 0.5 - square * polynomial(square, DIGAMMA)
    value = value - select(early, sum_of_steps, 0.0)
    value = select(y < math.inf, value, y)
    odd, sine, cosine = _sin_cos_pi(x)
    wave = select(odd, -sine, cosine) / select(odd, cosine, sine)
    reflected = select(nearest_even(x) == x, math.nan, value - wave * math.pi)
    value = rarely(mirrored, reflected, value)
    return select(x == 0.0, copy_sign(x.constant(math.inf), -x), value)
