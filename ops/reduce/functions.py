"""Functions that define reductions and their gradients, for NumPy arrays and as compiled maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.once import cached_property
from mxrun.operator import scalar
from mxrun.operator.scalar import MapKernel
from mxrun.ops.binary import quotient
from mxrun.ops.reduce.loops import ReductionKind
from mxrun.ops.sums import Array, count_of, mean_over, reduced_in_float64, sum_over

# Scalar functions run on arrays and symbolic values.
Scalar = Any


def _itself(out_grad: Scalar) -> Scalar:
    return out_grad


@dataclass(frozen=True)
class ReductionFunctions:
    """Functions that define a reduction and its gradient.

    formula: function of (data, axes, keepdims) for NumPy arrays.
    gradient: function of out_grad and, if `reads` is 1 or 2, data and output; out_grad and output
        are broadcast along the reduced axes.
    head: function of out_grad and output that replaces out_grad in the gradient by one or several
        tensors of the output's shape.
    further: reductions of data that head reads in place of the output.
    mean: True if the result is divided by the number of reduced elements, whose inverse is then the
        gradient's last argument.
    """

    formula: Callable[..., Array]
    compiled: ReductionKind
    gradient: Callable[..., Scalar] = _itself
    reads: int = 0
    head: Callable[..., Any] | None = None
    further: tuple[tuple[Callable[..., Array], ReductionKind], ...] = ()
    mean: bool = False

    @property
    def reads_output(self) -> bool:
        """True if the gradient depends on the output."""
        return (self.head is not None and not self.further) or self.reads > 1

    @cached_property
    def compiled_gradient(self) -> MapKernel:
        """Gradient as a map."""
        return scalar.compile(self.gradient, parameters=("part",) if self.mean else ())

    @cached_property
    def compiled_head(self) -> MapKernel | None:
        """Head as a map."""
        return None if self.head is None else scalar.compile(self.head)

    def parameters(self, count: int) -> list[float]:
        """Return the gradient's further arguments, for `count` elements reduced to one."""
        return [1 / max(count, 1)] if self.mean else []


def _part_of(out_grad: Scalar, part: Scalar) -> Scalar:
    return out_grad * part


def _where_equal(out_grad: Scalar, data: Scalar, output: Scalar) -> Scalar:
    return scalar.where(data == output, out_grad, 0.0)


def _products_of_others(out_grad: Scalar, product: Scalar, zeros: Scalar) -> tuple[Scalar, Scalar]:
    """Return out_grad times the product of all elements, and times that of all but the only zero.

    product: that of the elements that are not 0; zeros: number of the others.
    """
    head = out_grad * product
    none = scalar.where(scalar.isnan(head), head, 0.0)
    return scalar.where(zeros == 0, head, none), scalar.where(zeros == 1, head, none)


def _without_element(head: Scalar, head_of_zero: Scalar, data: Scalar) -> Scalar:
    return scalar.where(data == 0, head_of_zero, head / data)


def _without_number(head: Scalar, head_of_zero: Scalar, data: Scalar) -> Scalar:
    gradient = _without_element(head, head_of_zero, data)
    return scalar.where(scalar.isnan(data), 0.0, gradient)


def _where_number(out_grad: Scalar, data: Scalar) -> Scalar:
    return out_grad * scalar.where(scalar.isnan(data), 0.0, 1.0)


def _signed(out_grad: Scalar, data: Scalar) -> Scalar:
    return out_grad * (scalar.where(data > 0, 1.0, 0.0) - scalar.where(data < 0, 1.0, 0.0))


def _quotient(out_grad: Scalar, output: Scalar) -> Scalar:
    return scalar.where(output == 0, 0.0, out_grad / output)


def _times(head: Scalar, data: Scalar) -> Scalar:
    return head * data


def _average(data: Array, axes: Sequence[int], keepdims: bool) -> Array:
    """Return the mean; for integers truncated, and 0 for none."""
    if data.dtype.kind == "f":
        return mean_over(data, axes, keepdims)
    total = np.sum(data, axis=tuple(axes), keepdims=keepdims, dtype=np.int64)
    mean: Array = quotient(total, np.int64(max(count_of(data.shape, axes), 1)))
    return mean.astype(data.dtype)


def _magnitudes(data: Array, axes: Sequence[int], keepdims: bool) -> Array:
    return sum_over(np.abs(data), axes, keepdims)


def _root_of_squares(data: Array, axes: Sequence[int], keepdims: bool) -> Array:
    squares = np.square(data, dtype=np.float64)
    return np.sqrt(sum_over(squares, axes, keepdims)).astype(data.dtype)


def _without_zero(data: Array, axes: Sequence[int], keepdims: bool) -> Array:
    """Return the product of the elements that are not 0."""
    return reduced_in_float64(np.prod, np.where(data == 0, 1, data), axes, keepdims)


def _without_zero_and_nan(data: Array, axes: Sequence[int], keepdims: bool) -> Array:
    """Return the product of the elements that are neither 0 nor NaN."""
    return _without_zero(np.where(np.isnan(data), 1, data), axes, keepdims)


def _zeros(data: Array, axes: Sequence[int], keepdims: bool) -> Array:
    """Return the number of elements that are 0."""
    return sum_over((data == 0).astype(data.dtype), axes, keepdims)


def _extreme(
    function: Callable[..., Any], data: Array, axes: Sequence[int], keepdims: bool
) -> Array:
    """Return NumPy's maximum or minimum."""
    return np.asarray(function(data, axis=tuple(axes), keepdims=keepdims))


SUM = ReductionFunctions(sum_over, ReductionKind.SUM)
MEAN = ReductionFunctions(_average, ReductionKind.SUM, _part_of, mean=True)
SUM_WITHOUT_NAN = ReductionFunctions(
    partial(reduced_in_float64, np.nansum), ReductionKind.SUM_WITHOUT_NAN, _where_number, reads=1
)
PRODUCT = ReductionFunctions(
    partial(reduced_in_float64, np.prod),
    ReductionKind.PRODUCT,
    _without_element,
    reads=1,
    head=_products_of_others,
    further=((_without_zero, ReductionKind.PRODUCT_WITHOUT_ZERO), (_zeros, ReductionKind.ZEROS)),
)
PRODUCT_WITHOUT_NAN = replace(
    PRODUCT,
    formula=partial(reduced_in_float64, np.nanprod),
    compiled=ReductionKind.PRODUCT_WITHOUT_NAN,
    gradient=_without_number,
    further=(
        (_without_zero_and_nan, ReductionKind.PRODUCT_WITHOUT_ZERO_AND_NAN),
        (_zeros, ReductionKind.ZEROS),
    ),
)
MAXIMUM = ReductionFunctions(
    partial(_extreme, np.max), ReductionKind.MAXIMUM, _where_equal, reads=2
)
MINIMUM = ReductionFunctions(
    partial(_extreme, np.min), ReductionKind.MINIMUM, _where_equal, reads=2
)
MAGNITUDES = ReductionFunctions(_magnitudes, ReductionKind.MAGNITUDES, _signed, reads=1)
ROOT_OF_SQUARES = ReductionFunctions(
    _root_of_squares, ReductionKind.ROOT_OF_SQUARES, _times, reads=1, head=_quotient
)
