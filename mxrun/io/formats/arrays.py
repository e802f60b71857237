"""Arrays in memory as columns of a data set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.convert import first_unrepresentable, valid_range
from mxrun.io.dataset.fields import Field


def array_field(array: NDArray[Any], spec: TensorSpec, where: str, scale: float | None) -> Field:
    """Return an array [records, ...] as the column of an input that takes records of `spec`.

    Images without a channel axis get one. Bytes for a float32 input are kept and multiplied by
    `scale`, if there is one; other numbers are converted. where: name of the array for messages.
    Raises UserError for a number that the input's dtype cannot represent, and for text.
    """
    if spec.shape == (1, *array.shape[1:]):
        array = array[:, np.newaxis]
    if array.dtype == np.uint8 and spec.dtype == "float32" and scale is not None:
        return Field(array, scale)
    if array.dtype.kind not in "biuf":
        raise UserError(Diagnostic(f"{where} holds no numbers", None, spec.dtype, str(array.dtype)))
    at = first_unrepresentable(array, spec.dtype)
    if at is not None:
        record = np.unravel_index(at, array.shape)
        problem = f"{where}: record {record[0]} cannot be converted to {spec.dtype}"
        raise UserError(Diagnostic(problem, None, valid_range(spec.dtype), str(array[record])))
    return Field(array.astype(spec.dtype, copy=False))
