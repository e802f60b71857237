"""Arrays in memory as columns of a data set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.convert import first_unrepresentable, valid_range
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.pixels import checked_pixels


def array_field(
    array: NDArray[Any], spec: TensorSpec, where: str, white: float | None = None
) -> Field:
    """Return an array [records, ...] as the column of an input that takes records of `spec`.

    Images without a channel axis get one. white: pixel value of white, if the array is declared to
    hold images, whose pixels are divided by it; other numbers keep their values. where: name of the
    array for messages. Raises UserError for a number that the input's dtype cannot represent or
    that is no pixel, and for text.
    """
    if spec.shape == (1, *array.shape[1:]):
        array = array[:, np.newaxis]
    if array.dtype.kind not in "biuf":
        raise UserError(Diagnostic(f"{where} holds no numbers", None, spec.dtype, str(array.dtype)))
    at = first_unrepresentable(array, spec.dtype)
    if at is not None:
        record = np.unravel_index(at, array.shape)
        problem = f"{where}: record {record[0]} cannot be converted to {spec.dtype}"
        raise UserError(Diagnostic(problem, None, valid_range(spec.dtype), str(array[record])))
    if white is not None:
        return Field.images(checked_pixels(array, white, where), white)
    if array.dtype == np.uint8 and spec.dtype == "float32":
        # A batch converts them, in a quarter of the memory.
        return Field(array, 1.0)
    return Field(array.astype(spec.dtype, copy=False))
