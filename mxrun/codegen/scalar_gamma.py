"""Gamma function and its logarithm, of float64 numbers.

They are straight-line code without calls. Errors are a few units in the last place, except for
gammaln beside its negative zeros: there the error is absolute, but results for float32 numbers have
more bits than float32. The polynomials interpolate at Chebyshev nodes, with errors of less than
2^-57 of the result.
"""

from __future__ import annotations

import math
from itertools import pairwise

from mxrun.codegen.scalar_exponential import exp_of_pair
from mxrun.codegen.scalar_instructions import (
    at_most,
    magnitude,
    multiply_add,
    nearest_even,
    polynomial,
    rarely,
    round_down,
    select,
)
from mxrun.codegen.scalar_logarithm import log_of, log_pair
from mxrun.codegen.scalar_parts import (
    TINY,
    Pair,
    any_pair_sum,
    pair_product,
    split_any,
)
from mxrun.codegen.scalar_value import ScalarValue

# Above these numbers the gamma function is infinite, its logarithm Stirling's series.
GAMMA_END, SERIES_BEGIN = 200.0, 7.0
# (sin(pi x) / x - pi) / x^2 in x^2, for |x| <= 1/2.
SIN_PI = (
    -5.16771278004997,
    2.5501640398773455,
    -0.599264529320791,
    0.08214588661108463,
    -0.007370430944816936,
    0.0004663027953897944,
    -2.1915282920601852e-05,
    7.949258149042043e-07,
    -2.2349456072698055e-08,
)
# gamma(z) * e^z / z^(z - 1/2) in 1 / z, for z >= 8.
STIRLING = (
    2.5066282746310007,
    0.2088856895525834,
    0.00870357039801414,
    -0.006721090472514565,
    -0.0005752013546807503,
    0.001965300165877034,
    0.00017463098331623074,
    -0.0014814911146681811,
    -0.00016513488674168463,
    0.0023916854472640667,
    -0.001233492946121872,
    -0.0013905152186887604,
)
# gammaln(2 + d) / d for |d| <= 1/2.
GAMMALN = (
    0.42278433509846713,
    0.3224670334241132,
    -0.06735230105319814,
    0.02058080842778457,
    -0.0073855510286681535,
    0.002890510330738737,
    -0.0011927539120010226,
    0.0005096695248853096,
    -0.00022315475074520348,
    9.945750909889383e-05,
    -4.4926351103835584e-05,
    2.0507267416058863e-05,
    -9.43845871622642e-06,
    4.374374916907298e-06,
    -2.044920146770758e-06,
    9.57866333444567e-07,
    -4.303558758788841e-07,
    2.0304806744107196e-07,
    -1.3412819773317123e-07,
    6.379047514692307e-08,
)
# z * (gammaln(z) - (z - 1/2) * log(z) + z - log(2 pi) / 2) in 1 / z^2, for z >= 6.5.
SERIES = (
    0.08333333333333333,
    -0.0027777777777777063,
    0.0007936507935696276,
    -0.0005952380596323378,
    0.0008417429600477667,
    -0.0019165360071786031,
    0.006335682384599315,
    -0.026154838324745588,
    0.08829573826760116,
)
# Negative zeros of gammaln that have a float32 number nearby, the error of that number, and the
# coefficients of the Taylor polynomials.
ZEROS = (
    (-2.4570247382208006, -3.708e-17, 1.515603448022, 4.85832095, 1.41129),
    (-2.7476826467274127, 9.055e-17, -1.914350185612, 9.57518948, -20.0951),
    (-3.14358088834998, -2.182e-16, 7.781884658131, 25.8313384, 112.269),
    (-3.955294284858598, -1.999e-17, -20.7250608458, 251.714683, -3730.6),
    (-4.039361839740537, 2.114e-16, 26.79048088614, 324.255323, 5465.69),
    (-4.991544640560048, 1.517e-16, -116.5357816162, 6995.23595, -551420.0),
    (-5.0082181683225935, -4.393e-17, 123.3621845634, 7404.76243, 600556.0),
    (-5.998607480080875, -3.312e-16, -716.2454304275, 257851.59, -123445000.0),
    (-6.001385294453155, 6.416e-17, 723.7366299253, 260548.41, 125387000.0),
    (-6.999801507890638, 1.055e-17, -5035.967373768, 12690641.2, -42623500000.0),
    (-7.000198333407325, 2.504e-16, 5044.029941111, 12710958.8, 42725900000.0),
    (-7.999975197095821, -5.262e-17, -40315.71854219, 812764889.0, -21846000000000.0),
    (-8.000024800270682, -4.355e-16, 40324.28110812, 812937511.0, 21852900000000.0),
    (-8.999997244250977, -2.219e-16, -362875.4964747, 65840130100.0, -1.59279e16),
    (-9.000002755714823, -9.491e-17, 362884.503485, 65841764300.0, 1.59285e16),
)


def _sine_of_multiple(a: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Return sin(pi * a), to full relative accuracy, and whether a is an integer."""
    n = nearest_even(a)
    part, half = a - n, n * 0.5
    square = part * part
    value = part * multiply_add(square, polynomial(square, SIN_PI), math.pi)
    return select(nearest_even(half) == half, value, -value), part == 0.0


def _stirling(z: ScalarValue, error: ScalarValue) -> Pair:
    """Return b and c with gamma(z + error) = b * c, for z >= 8.

    Both contain a square root of z^(z - 1/2) / e^z, which may be infinite.
    """
    inverse, power = 1.0 / z, z - 0.5
    high, low = log_pair(*split_any(z))
    product, product_rest = pair_product(power, high)
    total, total_rest = any_pair_sum(product, -z)
    rest = multiply_add(power, low, product_rest) + multiply_add(
        error, multiply_add(inverse, -0.5, high), total_rest
    )
    root = exp_of_pair(total * 0.5, rest * 0.5)
    return polynomial(inverse, STIRLING) * root, root


def gamma(x: ScalarValue) -> ScalarValue:
    """Compute the gamma function: Stirling's series from 8 on, recurrence below, reflection."""
    a = at_most(magnitude(x), GAMMA_END)
    near = a < 8.0
    z = select(near, a + 8.0, a)
    scaled, root = _stirling(z, select(near, a - (z - 8.0), 0.0))
    # The product of a + 1 to a + 7; the sum of the first and the last is that of all pairs.
    pairs = a * (a + 8.0)
    steps = (pairs + 7.0) * (pairs + 12.0) * ((pairs + 15.0) * (a + 4.0))
    positive = scaled * root / select(near, steps * a, 1.0)
    sine, is_integer = _sine_of_multiple(magnitude(x))
    # gamma(-a) = -pi / (sin(pi a) * a * gamma(a)).
    above, below = select(near, steps, 1.0), select(near, x.constant(1.0), a)
    negative = above * -math.pi / root / (sine * below * scaled)
    negative = select(is_integer, x.constant(math.nan), negative)
    result = select(x < 0.0, negative, positive)
    return select(x == 0.0, 1.0 / x, result)


def gammaln(x: ScalarValue) -> ScalarValue:
    """Compute log |gamma(x)|."""
    a = magnitude(x)
    result = select(a < math.inf, _gammaln_of_positive(a), a)
    result = select(a == 0.0, math.inf, result)
    return rarely(x < 0.0, _gammaln_of_negative(x, result), result)


def _gammaln_of_positive(a: ScalarValue) -> ScalarValue:
    """Compute gammaln: polynomial from 1.5 to 2.5, recurrence beside, Stirling's series from 6.5.

    All are a multiple of a logarithm and a sum.
    """
    n = round_down(a + 0.5)
    d = a - n
    argument = select(n == 0.0, multiply_add(a, a, a), select(n == 1.0, a, 1.0))
    for step in range(1, 5):
        argument = select(n > step + 1.0, argument * (a - float(step)), argument)
    far = n >= SERIES_BEGIN
    logarithm = log_of(*split_any(select(far, a, argument)))
    inverse = 1.0 / a
    series = (
        multiply_add(inverse, polynomial(inverse * inverse, SERIES), 0.5 * math.log(2 * math.pi))
        - a
    )
    factor = select(far, a - 0.5, select(n < 2.0, a.constant(-1.0), 1.0))
    return multiply_add(factor, logarithm, select(far, series, d * polynomial(d, GAMMALN)))


def _gammaln_of_negative(x: ScalarValue, opposite: ScalarValue) -> ScalarValue:
    """Compute gammaln(x) for negative x by reflection, given gammaln(-x)."""
    a = magnitude(x)
    sine, is_integer = _sine_of_multiple(a)
    result = -log_of(*split_any(magnitude(sine) * a * (1 / math.pi))) - opposite
    close = (magnitude(result) < 1e-4) & (x > -9.5)
    result = select(close, _gammaln_beside_a_zero(x), result)
    result = select(is_integer | (a == math.inf), math.inf, result)
    return select(a < TINY, opposite, result)


def _gammaln_beside_a_zero(x: ScalarValue) -> ScalarValue:
    """Compute gammaln(x) by its Taylor polynomial at the nearest zero."""
    known = [x.constant(number) for number in ZEROS[0]]
    for last, numbers in pairwise(ZEROS):
        beyond = x < (last[0] + numbers[0]) / 2
        known = [select(beyond, *both) for both in zip(numbers, known, strict=True)]
    zero, zero_rest, *coefficients = known
    d = x - zero - zero_rest
    return d * polynomial(d, coefficients)
