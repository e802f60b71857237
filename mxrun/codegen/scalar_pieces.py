"""Piecewise polynomials of float32 numbers, whose coefficients are looked up in registers.

A table has 32 pieces. It lists their centres and the coefficients of the powers of the distance
from the centre.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from mxrun.codegen.scalar_instructions import bits, lookup, polynomial
from mxrun.codegen.scalar_value import ScalarValue

Pieces = list[tuple[float, ...]]
Function = Callable[[float], float]
Ends = tuple[float, float]

PIECES = 32
# Centres that are tried for a piece, and those of them whose coefficients are computed.
_CENTRES, _BEST_CENTRES = 256, 8
# A slope that is too small for a difference in float32.
_NO_SLOPE = 2.0**-36


def piecewise(x: ScalarValue, number: ScalarValue, pieces: Pieces) -> ScalarValue:
    """Compute the function that the tables approximate, for x in the piece of this number."""
    d, coefficients = looked_up(x, number, pieces)
    return polynomial(d, coefficients)


def looked_up(
    x: ScalarValue, number: ScalarValue, pieces: Pieces
) -> tuple[ScalarValue, list[ScalarValue]]:
    """Return the distance of x from the centre of its piece, and the coefficients."""
    centre, *coefficients = (lookup(number, entries) for entries in pieces)
    return x - centre, coefficients


def octave_number(a: ScalarValue, shift: float) -> ScalarValue:
    """Return the number of a's piece, 8 per octave of a + shift, for a >= 0 in four octaves.

    The first piece is the one that contains the shift.
    """
    return bits(a + shift) >> 20


def octave_table(
    function: Function,
    shift: float,
    degree: int,
    first: Callable[[Ends], Sequence[float]] | None = None,
) -> Pieces:
    """Return tables of a function by the numbers of `octave_number`.

    first: returns the piece that begins at 0, in place of the function's.
    """
    return table(
        first(ends) if first and not ends[0] else piece(function, ends, degree)
        for ends in _octave_ends(shift)
    )


def table(rows: Iterable[Sequence[float]]) -> Pieces:
    """Return the tables of pieces: their columns, in float32."""
    return [tuple(np.float32(column).tolist()) for column in np.array(list(rows)).T]


def piece(function: Function, ends: Ends, degree: int) -> list[float]:
    """Return the centre of an interval and the coefficients of a polynomial about it.

    The centre is chosen where the function is almost a float32 number, so that the first
    coefficient loses nothing (Gal's accurate tables), and the second one little; it is 0 for an
    interval that contains 0. The polynomial is exact at the centre and at the other zeros of a
    Chebyshev polynomial.
    """
    low, high = ends
    middle, radius = np.float32((low + high) / 2), (high - low) / 2
    zeros = _chebyshev_zeros(degree + 1)
    if low * high > 0:
        distances = radius * zeros[np.arange(degree + 1) != degree // 2]
        centres = [float(middle + k * np.spacing(middle)) for k in range(_CENTRES)]
        centres.sort(key=lambda centre: _error(function(centre)))
    elif low * high < 0:
        distances, centres = radius * _chebyshev_zeros(degree), [0.0]
    else:
        # The first of the zeros is moved to 0.
        distances, centres = (low + high) * (zeros[:-1] + zeros[0]) / (1.0 + zeros[0]), [0.0]
    rows = [_about(centre, function, distances) for centre in centres[:_BEST_CENTRES]]
    best = min(rows, key=lambda row: _error(row[1]) + _error(row[2]) * radius)
    # If the value and the slope at 0 are 0, the polynomial is -0 at -0.
    slope = best[2] if abs(best[2]) > _NO_SLOPE else _NO_SLOPE
    return [best[0], best[1] or -0.0, slope, *best[3:]]


def _about(centre: float, function: Function, distances: npt.NDArray[np.float64]) -> list[float]:
    """Return a centre and the coefficients of a polynomial exact there and at distances from it."""
    value = function(centre)
    slopes = [(function(centre + d) - value) / d for d in distances.tolist()]
    powers = np.vander(distances, increasing=True)
    return [centre, value, *np.linalg.solve(powers, slopes).tolist()]


def _chebyshev_zeros(degree: int) -> npt.NDArray[np.float64]:
    return np.cos((np.arange(degree) + 0.5) * math.pi / degree)


def _error(number: float) -> float:
    """Return the error of rounding a number to float32."""
    return abs(float(np.float32(number)) - number)


def _octave_ends(shift: float) -> list[Ends]:
    """Return the ends of the pieces, by the numbers of `octave_number`.

    The index consists of the lowest bits of the exponent and the highest of the fraction.
    """
    ends = []
    for number in range(PIECES):
        octave, part = divmod(number, 8)
        # The exponent field is biased by 127.
        exponent = math.floor(math.log2(shift))
        exponent += (octave - exponent - 127) % 4
        if (9 + part) * 2.0 ** (exponent - 3) <= shift:
            exponent += 4
        width = 2.0 ** (exponent - 3)
        ends.append((max((8 + part) * width - shift, 0.0), (9 + part) * width - shift))
    return ends
