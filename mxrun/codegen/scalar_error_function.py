"""Error function and its complement of float64 numbers.

They are straight-line code without calls, with errors of about two units in the last place. The
polynomials interpolate at Chebyshev nodes, with errors of less than 2^-57 of the result.
"""

from __future__ import annotations

from mxrun.codegen.scalar_exponential import exp_of_pair
from mxrun.codegen.scalar_instructions import (
    at_most,
    copy_sign,
    fma,
    magnitude,
    polynomial,
    select,
)
from mxrun.codegen.scalar_parts import (
    pair_product,
)
from mxrun.codegen.scalar_value import ScalarValue

# erfc(x) * e^(x^2) * (1 + 2 x) is smooth in (x - 3.75) / (x + 3.75) (Shepherd and Laframboise,
# 1981). From 28 on erfc is 0.
ERFC_CENTRE, ERFC_END = 3.75, 28.0
# erf(x) / x - 1 in x^2, for |x| <= 1/2.
ERF = (
    0.12837916709551256,
    -0.37612638903183476,
    0.11283791670925353,
    -0.026866170632887928,
    0.00522397737302147,
    -0.0008548297753674966,
    0.00012053335124353741,
    -1.4845849259707869e-05,
    1.4725865480556744e-06,
)
# For x from 1/2 to 28.
ERFC = (
    1.2375126308378275,
    -0.14024059858554702,
    0.003585415485463716,
    0.08227673849015107,
    -0.10880393014171023,
    0.09230432116019681,
    -0.058693398590442154,
    0.02836227742153153,
    -0.009746579549579651,
    0.0017556258323971348,
    0.00029371361560774005,
    -0.000290153980145544,
    5.1649270689225815e-05,
    2.2383920525124922e-05,
    -1.1444462072146697e-05,
    -9.728897979881812e-07,
    1.7517779985327927e-06,
    -5.814871566743044e-08,
    -2.580296934489986e-07,
    2.4086395688834988e-08,
    3.724337449140303e-08,
    -4.165495021219563e-09,
    -3.915160635849516e-09,
    4.0646287283636114e-10,
)


def _erf_series(x: ScalarValue) -> ScalarValue:
    """Compute erf(x) for |x| <= 1/2."""
    return fma(x, polynomial(x * x, ERF), x)


def _erfc_above(a: ScalarValue) -> ScalarValue:
    """Compute erfc(a) for a >= 1/2."""
    within = at_most(a, ERFC_END)
    place = (within - ERFC_CENTRE) / (within + ERFC_CENTRE)
    square, rest = pair_product(within, within)
    return exp_of_pair(-square, -rest) * (polynomial(place, ERFC) / fma(within, 2.0, 1.0))


def erf(x: ScalarValue) -> ScalarValue:
    """Compute the error function."""
    a = magnitude(x)
    return copy_sign(select(a < 0.5, _erf_series(a), 1.0 - _erfc_above(a)), x)


def erfc(x: ScalarValue) -> ScalarValue:
    """Compute 1 - erf(x), to full relative accuracy for large x."""
    far = _erfc_above(magnitude(x))
    far = select(x < 0.0, 2.0 - far, far)
    return select(magnitude(x) < 0.5, 1.0 - _erf_series(x), far)
