"""Data types by name, with MXNet's type codes for its JSON."""

from __future__ import annotations

import numpy as np

from mxrun.base.errors import UserError, nearest

# MXNet's codes: 3rdparty/mshadow/mshadow/base.h, enum TypeFlag.
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
# The upper half of a float32. Only plans keep tensors in it (`precision: bfloat16`): no network
# names it.
BFLOAT16 = "bfloat16"
_BFLOAT16_BYTES = 2


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """The NumPy dtype called `name`; raises UserError for a name mxrun does not know."""
    if name == BFLOAT16:
        # NumPy has none of its own; loaded where one is asked for, because it takes its time.
        import ml_dtypes

        bfloat16: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    if name not in TYPE_CODES:
        hint = nearest(name, TYPE_CODES) or f"known: {', '.join(TYPE_CODES)}"
        raise UserError(f"unknown data type {name!r}; {hint}")
    return np.dtype(name)


def item_size(name: str) -> int:
    """Bytes of one element."""
    if name == BFLOAT16:
        return _BFLOAT16_BYTES
    return numpy_dtype(name).itemsize
