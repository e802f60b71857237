"""Check that numbers of a file can be converted to the network's dtype without loss of meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# First number above int32. As a power of two it is exact in float32.
_ABOVE_INT32 = 2**31


def first_unrepresentable(numbers: NDArray[Any], dtype: str) -> int | None:
    """Return the flat index of the first number that `dtype` (float32 or int32) cannot represent.

    Returns None if there is none. For int32 a number must be an integer within int32. For float32
    it must be finite and within float32's range; it is rounded.
    """
    if numbers.dtype.kind in "biu" and (dtype == "float32" or np.can_cast(numbers.dtype, dtype)):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        if dtype == "int32":
            representable = (numbers == np.floor(numbers)) & np.isfinite(numbers)
            representable &= (numbers >= -_ABOVE_INT32) & (numbers < _ABOVE_INT32)
        else:
            representable = np.isfinite(numbers.astype(np.float32, copy=False))
    return None if representable.all() else int(np.argmin(representable))


def valid_range(dtype: str) -> str:
    """Return a description of the numbers that `first_unrepresentable` accepts, for messages."""
    return "an integer within int32" if dtype == "int32" else "a finite number within float32"
