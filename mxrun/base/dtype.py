"""Data types by name, with their codes in MXNet's JSON."""

from __future__ import annotations

from functools import cache

import numpy as np

from mxrun.base.errors import UserError
from mxrun.base.near_names import nearest

# MXNet's type codes: 3rdparty/mshadow/mshadow/base.h, enum TypeFlag.
TYPE_CODES: dict[str, int] = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "uint8": 3,
    "int32": 4,
    "int8": 5,
    "int64": 6,
}
NAMES_BY_CODE: dict[int, str] = {code: name for name, code in TYPE_CODES.items()}

FLOAT32 = "float32"
LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127
# The upper half of a float32. Only plans store tensors in it (`precision: bfloat16`); networks
# cannot name it.
BFLOAT16 = "bfloat16"
_BFLOAT16_BYTES = 2


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """Return the NumPy dtype called `name`; raises UserError for an unknown name."""
    if name == BFLOAT16:
        # NumPy has no bfloat16. Imported on demand, because importing ml_dtypes is slow.
        import ml_dtypes

        bfloat16: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    if name not in TYPE_CODES:
        known = (*TYPE_CODES, BFLOAT16)
        hint = nearest(name, known) or f"known: {', '.join(known)}"
        raise UserError(f"unknown data type {name!r}; {hint}")
    return np.dtype(name)


@cache
def item_size(name: str) -> int:
    """Return the size of one element in bytes."""
    if name == BFLOAT16:
        return _BFLOAT16_BYTES
    return numpy_dtype(name).itemsize
