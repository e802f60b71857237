"""Sums, means and products of NumPy arrays, for the bodies of operators.

NumPy adds float32 numbers along any axis but the last one after the other, which loses digits; here
totals of floating-point numbers are float64, and are rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.tensor import Shape

Array = npt.NDArray[Any]


def count_of(shape: Shape, axes: Sequence[int]) -> int:
    """Return the number of elements per output of a reduction of `shape` over `axes`."""
    return math.prod(shape[axis] for axis in axes)


def reduced_in_float64(
    function: Callable[..., Any], data: Array, axes: int | Sequence[int], keepdims: bool = False
) -> Array:
    """Return np.sum or a similar function of data, in data's dtype.

    Integers are reduced as NumPy does.
    """
    axis = axes if isinstance(axes, int) else tuple(axes)
    if data.dtype.kind != "f":
        return np.asarray(function(data, axis=axis, keepdims=keepdims))
    with np.errstate(over="ignore", invalid="ignore"):
        total = function(data, axis=axis, keepdims=keepdims, dtype=np.float64)
        return np.asarray(total).astype(data.dtype)


def sum_over(data: Array, axes: int | Sequence[int], keepdims: bool = False) -> Array:
    """Return the sum of data over axes."""
    return reduced_in_float64(np.sum, data, axes, keepdims)


def running_sums(shape: Shape, dtype: npt.DTypeLike) -> Array:
    """Return zeros to which numbers of a dtype are added: in float64, or in an integer type."""
    kind = np.dtype(dtype)
    return np.zeros(shape, np.float64 if kind.kind == "f" else kind)


def mean_over(data: Array, axes: Sequence[int], keepdims: bool = False) -> Array:
    """Return the mean of data over axes. That of no elements is NaN, without NumPy's warning."""
    if count_of(data.shape, axes):
        return reduced_in_float64(np.mean, data, axes, keepdims)
    return np.full_like(sum_over(data, axes, keepdims), np.nan)
