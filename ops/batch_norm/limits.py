"""What limits batch normalization's output, as numbers for its loops.

The operators one by one compare what memory has rounded. The loops compare what they have in
registers: rounding keeps the order, so there is a first and a last float32 that memory makes a
number within the limits of.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from mxrun.base.dtype import numpy_dtype
from mxrun.operator.register import AnyProperty
from mxrun.ops.batch_norm.limited import BatchNormLimitedProperty
from mxrun.ops.batch_norm.loops import CLIPPED, NOT, RECTIFIED

_INFINITY = 0x7F800000
# All of float32 but NaN in its order: the bits of a magnitude, negative for negative numbers.
_NUMBERS = range(-_INFINITY, _INFINITY + 1)


@dataclass(frozen=True)
class Limits:
    """What limits the output.

    low, high: the least and the greatest float32 that memory makes a number within the limits of;
    of a rectifier, low is the greatest that it makes 0 of. floor, ceiling: what clip makes of
    numbers beyond.
    """

    kind: int
    low: float = 0.0
    high: float = 0.0
    floor: float = 0.0
    ceiling: float = 0.0

    @staticmethod
    def of(prop: AnyProperty, dtype: str) -> Limits:
        """Of a normalization's output in memory of a type."""
        if not isinstance(prop, BatchNormLimitedProperty):
            return Limits(NOT)
        if prop.parameters.limits is None:
            return Limits(RECTIFIED, _last(0.0, dtype))
        floor, ceiling = (float(np.float32(limit)) for limit in prop.parameters.limits)
        return Limits(CLIPPED, _first(floor, dtype), _last(ceiling, dtype), floor, ceiling)

    @property
    def forward(self) -> tuple[int | float, ...]:
        """The slots of the loop that limits the output."""
        return self.kind, self.low, self.high, self.floor, self.ceiling

    @property
    def passing(self) -> tuple[float, float]:
        """The slots of the loops that ask what passes."""
        return self.low, self.high


@cache
def _first(limit: float, dtype: str) -> float:
    """The least float32 that is not below the limit in memory of a type."""
    return _number(_NUMBERS[bisect_left(_NUMBERS, limit, key=_stored(dtype))])


@cache
def _last(limit: float, dtype: str) -> float:
    """The greatest float32 that is not above the limit in memory of a type."""
    return _number(_NUMBERS[bisect_right(_NUMBERS, limit, key=_stored(dtype)) - 1])


def _number(place: int) -> float:
    """The float32 at a place in the order."""
    magnitude = float(np.uint32(abs(place)).view(np.float32))
    return -magnitude if place < 0 else magnitude


def _stored(dtype: str) -> Callable[[int], float]:
    """What memory of a type makes of the float32 at a place."""
    kind = numpy_dtype(dtype)
    return lambda place: float(np.float32(_number(place)).astype(kind))
