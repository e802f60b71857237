"""Numbers of a file → the type that the network reads, without changing any of them unseen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# The first number above int32, a power of two: the last one within is this one as a float32.
_ABOVE_INT32 = 2**31


def unfit(numbers: NDArray[Any], dtype: str) -> int | None:
    """The flat position of the first number that `dtype` (float32 or int32) cannot stand for.

    Integers must be whole and within int32, floating-point numbers finite and within float32,
    where they are rounded.
    """
    if numbers.dtype.kind == "b":
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        if dtype == "int32":
            fit = (numbers == np.floor(numbers)) & np.isfinite(numbers)
            fit &= (numbers >= -_ABOVE_INT32) & (numbers < _ABOVE_INT32)
        else:
            fit = np.isfinite(numbers.astype(np.float32, copy=False))
    return None if fit.all() else int(np.argmin(fit))


def wanted(dtype: str) -> str:
    """What `unfit` asks for, in words."""
    return "a whole number within int32" if dtype == "int32" else "a finite number within float32"
