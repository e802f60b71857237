"""Limits of batch normalisation's output as constants of its loops.

The separate operators compare values after rounding to memory's dtype. The fused loops compare
float32 values in registers. Rounding is monotone, so the float32 values that round into the limits
are an interval, whose ends are computed here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import numpy_dtype
from mxrun.operator.register import AnyProperty
from mxrun.ops.batch_norm.limited import BatchNormLimitedProperty
from mxrun.ops.batch_norm.loops import CLIPPED, NOT, RECTIFIED

_INFINITY = 0x7F800000
# Ordinals of all float32 but NaN: the bits of the magnitude, negated for negative numbers.
_NUMBERS = range(-_INFINITY, _INFINITY + 1)


@dataclass(frozen=True)
class Limits:
    """Limits of the output.

    low, high: the smallest and the largest float32 that rounds to a value within the limits; for a
    rectifier, low is the largest that rounds to 0. floor, ceiling: clip's results beyond the
    limits.
    """

    kind: int
    low: float = 0.0
    high: float = 0.0
    floor: float = 0.0
    ceiling: float = 0.0

    @staticmethod
    def of(prop: AnyProperty, dtype: str) -> Limits:
        """Return the limits of a normalisation's output that is stored as `dtype`."""
        if not isinstance(prop, BatchNormLimitedProperty):
            return Limits(NOT)
        if prop.parameters.limits is None:
            return Limits(RECTIFIED, _last(0.0, dtype))
        floor, ceiling = (float(np.float32(limit)) for limit in prop.parameters.limits)
        return Limits(
            CLIPPED,
            low=_first(floor, dtype),
            high=_last(ceiling, dtype),
            floor=floor,
            ceiling=ceiling,
        )

    @property
    def forward(self) -> dict[str, Any]:
        """Arguments of the loop that limits the output."""
        beyond = {"floor": self.floor, "ceiling": self.ceiling}
        return {"limits": self.kind, **self.passing, **beyond}

    @property
    def passing(self) -> dict[str, float]:
        """Bounds as arguments of the loops that select the gradients that pass."""
        return {"low": self.low, "high": self.high}


@cache
def _first(limit: float, dtype: str) -> float:
    """Return the smallest float32 that is not below the limit after rounding to `dtype`."""
    return _number(_NUMBERS[bisect_left(_NUMBERS, limit, key=_stored(dtype))])


@cache
def _last(limit: float, dtype: str) -> float:
    """Return the largest float32 that is not above the limit after rounding to `dtype`."""
    return _number(_NUMBERS[bisect_right(_NUMBERS, limit, key=_stored(dtype)) - 1])


def _number(place: int) -> float:
    """Return the float32 of an ordinal."""
    magnitude = float(np.uint32(abs(place)).view(np.float32))
    return -magnitude if place < 0 else magnitude


def _stored(dtype: str) -> Callable[[int], float]:
    """Return the function that rounds the float32 of an ordinal to `dtype`."""
    kind = numpy_dtype(dtype)
    return lambda place: float(np.float32(_number(place)).astype(kind))
