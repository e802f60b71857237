"""Declarations of methods of NDArray, written by `python tests/support/operator_stubs.py`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import Self

from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.creation import DType

METHODS: tuple[str, ...]
COMPOSITES: Mapping[str, Callable[..., Any]]

class FluentMethods:
    """Methods named in `METHODS` and `COMPOSITES`."""

    def abs(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = |data|, whose gradient at 0 is 0, elementwise."""

    def arccos(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = arccos(data); NaN outside of [-1, 1], elementwise."""

    def arccosh(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = arccosh(data); NaN below 1, elementwise."""

    def arcsin(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = arcsin(data); NaN outside of [-1, 1], elementwise."""

    def arcsinh(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = arcsinh(data), elementwise."""

    def arctan(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = arctan(data), elementwise."""

    def arctanh(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = arctanh(data); NaN outside of [-1, 1], elementwise."""

    def argmax(
        self,
        axis: int | None = None,
        keepdims: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = index of the first maximum along the axis."""

    def argmax_channel(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = index of the first maximum along axis 1."""

    def argmin(
        self,
        axis: int | None = None,
        keepdims: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = index of the first minimum along the axis."""

    def cbrt(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = the real cube root of data, elementwise."""

    def ceil(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = the smallest integer >= data, elementwise."""

    def clip(self, a_min: float, a_max: float, *, out: Any = None, name: str | None = None) -> Self:
        """output = a_max where data > a_max, a_min where data < a_min, else data."""

    def cos(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = cos(data), data in radians, elementwise."""

    def cosh(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = cosh(data), elementwise."""

    def degrees(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = data * 180 / pi, elementwise."""

    def dot(
        self,
        rhs: NDArrayBase,
        transpose_a: bool = False,
        transpose_b: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output[i, j] = sum over k of lhs[i, k] * rhs[k, j]; i and j stand for any number of
        axes.
        """

    def exp(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = e^data, elementwise."""

    def expand_dims(self, axis: int, *, out: Any = None, name: str | None = None) -> Self:
        """output = data with an inserted axis of size 1."""

    def expm1(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = e^data - 1, exact near 0, elementwise."""

    def fix(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = data rounded towards 0, elementwise."""

    def flatten(self, *, out: Any = None, name: str | None = None) -> Self:
        """output[n, :] = data[n] in row-major order; data [N, ...], output [N, product of the
        other axes].
        """

    def floor(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = the largest integer <= data, elementwise."""

    def log(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = the natural logarithm of data, elementwise."""

    def log10(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = log10(data), elementwise."""

    def log1p(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = log(1 + data), exact near 0, elementwise."""

    def log2(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = log2(data), elementwise."""

    def log_softmax(
        self,
        axis: int = -1,
        temperature: float | None = None,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = x - max x - log(sum of exp(x - max x)) along the axis, x = data /
        temperature.
        """

    def max(
        self,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = maximum of data over the axes."""

    def mean(
        self,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = mean of data over the axes."""

    def min(
        self,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = minimum of data over the axes."""

    def nanprod(
        self,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = product of data over the axes without NaN elements."""

    def nansum(
        self,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = sum of data over the axes without NaN elements."""

    def norm(
        self,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        ord: int = 2,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = sum of |data| (ord 1) or square root of the sum of data^2 (ord 2) over the
        axes.
        """

    def ones_like(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = 1, elementwise."""

    def prod(
        self,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = product of data over the axes."""

    def radians(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = data * pi / 180, elementwise."""

    def rcbrt(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = 1 / cbrt(data), elementwise."""

    def reciprocal(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = 1 / data, elementwise."""

    def relu(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = max(data, 0), elementwise."""

    def rint(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = data rounded to the nearest integer, halves down, elementwise."""

    def round(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = data rounded to the nearest integer, halves away from 0, elementwise."""

    def rsqrt(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = data^(-1/2); NaN below 0, elementwise."""

    def sigmoid(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = 1 / (1 + exp(-data)), elementwise."""

    def sign(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = -1, 0 or 1 with the sign of data; 0 of NaN, elementwise."""

    def sin(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = sin(data), data in radians, elementwise."""

    def sinh(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = sinh(data), elementwise."""

    def softmax(
        self,
        axis: int = -1,
        temperature: float | None = None,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = exp(x - max x) / sum of exp(x - max x) along the axis, x = data /
        temperature.
        """

    def split(
        self,
        num_outputs: int,
        axis: int = 1,
        squeeze_axis: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Any:
        """output0, output1, ... = consecutive slices of equal size of data along `axis`."""

    def sqrt(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = data^(1/2); NaN below 0, elementwise."""

    def square(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = data^2, elementwise."""

    def squeeze(
        self,
        axis: int | Sequence[int] | None = None,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = data without its axes of size 1; at least one axis remains."""

    def sum(
        self,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = sum of data over the axes."""

    def swapaxes(
        self,
        dim1: int = 0,
        dim2: int = 0,
        *,
        out: Any = None,
        name: str | None = None,
    ) -> Self:
        """output = data with two axes exchanged."""

    def tan(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = tan(data), data in radians, elementwise."""

    def tanh(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = tanh(data), elementwise."""

    def trunc(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = data rounded towards 0, elementwise."""

    def zeros_like(self, *, out: Any = None, name: str | None = None) -> Self:
        """output = 0, elementwise."""

    def broadcast_like(self, rhs: NDArrayBase) -> Self:
        """Return the elements of `lhs` repeated to the shape of `rhs`."""

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """Return the elements repeated to a shape of as many axes, in which 0 keeps a size."""

    def flip(self, axis: int) -> Self:
        """Return the elements in reverse order on one axis."""

    def one_hot(
        self,
        depth: int,
        on_value: float = 1.0,
        off_value: float = 0.0,
        dtype: DType = None,
    ) -> Self:
        """Return `on_value` at each index of a new last axis of size `depth`, else `off_value`."""

    def pick(self, index: NDArrayBase, axis: int = -1, keepdims: bool = False) -> Self:
        """Return one element along an axis for each index; index has the other axes."""

    def repeat(self, repeats: int, axis: int | None = None) -> Self:
        """Return each element `repeats` times in succession, on one axis or in one row of all."""

    def slice(
        self,
        begin: Sequence[int | None],
        end: Sequence[int | None],
        step: Sequence[int | None] | None = None,
    ) -> Self:
        """Return the elements from `begin` to `end`, which have a number for each leading axis."""

    def slice_axis(self, axis: int, begin: int, end: int | None) -> Self:
        """Return the elements from `begin` to `end` on one axis."""

    def take(self, indices: NDArrayBase, axis: int = 0) -> Self:
        """Return the parts of an array at indices along an axis, whose place their axes take."""

    def tile(self, reps: int | Sequence[int]) -> Self:
        """Return the array repeated `reps` times on each of its last axes."""
