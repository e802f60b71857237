"""The gamma function, its logarithm and that one's derivative, of float32 numbers, in float64.

The tables interpolate in Chebyshev's nodes, to about 1e-15 of what they stand for: the results
near the functions' zeros are small differences.
"""

from __future__ import annotations

import math

from mxrun.backend.scalar_double import exp, positive_log, sin_cos
from mxrun.backend.scalar_machine import (
    copy_sign,
    fma,
    magnitude,
    nearest_even,
    polynomial,
    round_down,
    select,
)
from mxrun.backend.scalar_value import Value

# log(gamma(x)) / (x - 2) by x - 2.25, from 1.5 to 3.
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
# x * (log(gamma(x)) - (x - 1/2) log(x) + x - log(2 pi) / 2) by 1 / x^2, from 3.
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
# x^2 * (log(x) - 1 / (2 x) - digamma(x)) by 1 / x^2, from 8.
DIGAMMA = (
    0.08333333333333333,
    -0.008333333333278636,
    0.0039682539119537084,
    -0.0041666448230497,
    0.007571689620283902,
    -0.020697987372370493,
    0.06362150587634356,
)


def _of_half_turns(x: Value) -> tuple[Value, Value, Value]:
    """Whether the nearest multiple of pi / 2 to pi * x is no multiple of pi; the sine and the
    cosine of what is left.
    """
    part = x - nearest_even(x)
    quarter = nearest_even(part + part)
    sine, cosine = sin_cos((part - quarter * 0.5) * math.pi)
    return quarter != 0.0, sine, cosine


def gammaln(x: Value) -> Value:
    """log |gamma(x)|."""
    mirrored = x < 0.5
    y = select(mirrored, 1.0 - x, x)
    logarithm = positive_log(y)
    early = y < 1.5
    shifted = select(early, y + 1.0, y)
    low = (shifted - 2.0) * polynomial(shifted - 2.25, LGAMMA)
    low = low - select(early, logarithm, 0.0)
    inverse = 1.0 / y
    high = fma(y - 0.5, logarithm, 0.5 * math.log(2.0 * math.pi) - y)
    high = fma(inverse, polynomial(inverse * inverse, STIRLING), high)
    value = select(y < 3.0, low, high)
    # gamma(x) gamma(1 - x) = pi / sin(pi x).
    odd, sine, cosine = _of_half_turns(x)
    wave = magnitude(select(odd, cosine, sine))
    value = select(mirrored, positive_log(math.pi / wave) - value, value)
    pole = (x <= 0.0) & (wave == 0.0)
    endless = (magnitude(x) == math.inf) | pole
    return select(x == x, select(endless, math.inf, value), x)


def gamma(x: Value) -> Value:
    """The gamma function; NaN at the whole numbers below zero."""
    below = round_down(x) * 0.5
    odd = (x < 0.0) & (round_down(below) != below)
    value = exp(gammaln(x))
    value = select(odd, -value, value)
    pole = (x < 0.0) & (nearest_even(x) == x)
    value = select(pole, math.nan, value)
    return select(x == 0.0, copy_sign(x.constant(math.inf), x), value)


def digamma(x: Value) -> Value:
    """The derivative of log(gamma(x)); NaN at the whole numbers below zero."""
    mirrored = x < 0.0
    y = select(mirrored, 1.0 - x, x)
    early = y < 8.0
    # The sum of 1 / (y + k) for k from 0 to 7, two and two.
    steps = [(y + y + 7.0) / ((y + k) * (y + (7.0 - k))) for k in (1.0, 2.0, 3.0)]
    sum_of_steps = steps[0] + steps[1] + steps[2] + 1.0 / (y + 7.0) + 1.0 / y
    far = select(early, y + 8.0, y)
    inverse = 1.0 / far
    square = inverse * inverse
    value = positive_log(far) - inverse * 0.5 - square * polynomial(square, DIGAMMA)
    value = value - select(early, sum_of_steps, 0.0)
    value = select(y < math.inf, value, y)
    odd, sine, cosine = _of_half_turns(x)
    wave = select(odd, -sine, cosine) / select(odd, cosine, sine)
    value = select(mirrored, value - wave * math.pi, value)
    pole = mirrored & (nearest_even(x) == x)
    value = select(pole, math.nan, value)
    return select(x == 0.0, copy_sign(x.constant(math.inf), -x), value)
