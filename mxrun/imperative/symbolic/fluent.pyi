"""Declarations of methods of Symbol, written by `python tests/support/operator_stubs.py`."""

from collections.abc import Sequence

from typing_extensions import Self

from mxrun.graph.symbol import Symbol

METHODS: tuple[str, ...]

class SymbolMethods:
    """Methods named in `METHODS`."""

    def abs(self, *, name: str | None = None) -> Self:
        """output = |data|, whose gradient at 0 is 0, elementwise."""

    def arccos(self, *, name: str | None = None) -> Self:
        """output = arccos(data); NaN outside of [-1, 1], elementwise."""

    def arccosh(self, *, name: str | None = None) -> Self:
        """output = arccosh(data); NaN below 1, elementwise."""

    def arcsin(self, *, name: str | None = None) -> Self:
        """output = arcsin(data); NaN outside of [-1, 1], elementwise."""

    def arcsinh(self, *, name: str | None = None) -> Self:
        """output = arcsinh(data), elementwise."""

    def arctan(self, *, name: str | None = None) -> Self:
        """output = arctan(data), elementwise."""

    def arctanh(self, *, name: str | None = None) -> Self:
        """output = arctanh(data); NaN outside of [-1, 1], elementwise."""

    def argmax(
        self,
        *,
        axis: int | None = None,
        keepdims: bool = False,
        name: str | None = None,
    ) -> Self:
        """output = index of the first maximum along the axis."""

    def argmax_channel(self, *, name: str | None = None) -> Self:
        """output = index of the first maximum along axis 1."""

    def argmin(
        self,
        *,
        axis: int | None = None,
        keepdims: bool = False,
        name: str | None = None,
    ) -> Self:
        """output = index of the first minimum along the axis."""

    def cbrt(self, *, name: str | None = None) -> Self:
        """output = the real cube root of data, elementwise."""

    def ceil(self, *, name: str | None = None) -> Self:
        """output = the smallest integer >= data, elementwise."""

    def clip(self, *, a_min: float, a_max: float, name: str | None = None) -> Self:
        """output = a_max where data > a_max, a_min where data < a_min, else data."""

    def cos(self, *, name: str | None = None) -> Self:
        """output = cos(data), data in radians, elementwise."""

    def cosh(self, *, name: str | None = None) -> Self:
        """output = cosh(data), elementwise."""

    def degrees(self, *, name: str | None = None) -> Self:
        """output = data * 180 / pi, elementwise."""

    def dot(
        self,
        rhs: Symbol | None = None,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        name: str | None = None,
    ) -> Self:
        """output[i, j] = sum over k of lhs[i, k] * rhs[k, j]; i and j stand for any number of
        axes.
        """

    def exp(self, *, name: str | None = None) -> Self:
        """output = e^data, elementwise."""

    def expand_dims(self, *, axis: int, name: str | None = None) -> Self:
        """output = data with an inserted axis of size 1."""

    def expm1(self, *, name: str | None = None) -> Self:
        """output = e^data - 1, exact near 0, elementwise."""

    def fix(self, *, name: str | None = None) -> Self:
        """output = data rounded towards 0, elementwise."""

    def flatten(self, *, name: str | None = None) -> Self:
        """output[n, :] = data[n] in row-major order; data [N, ...], output [N, product of the
        other axes].
        """

    def floor(self, *, name: str | None = None) -> Self:
        """output = the largest integer <= data, elementwise."""

    def log(self, *, name: str | None = None) -> Self:
        """output = the natural logarithm of data, elementwise."""

    def log10(self, *, name: str | None = None) -> Self:
        """output = log10(data), elementwise."""

    def log1p(self, *, name: str | None = None) -> Self:
        """output = log(1 + data), exact near 0, elementwise."""

    def log2(self, *, name: str | None = None) -> Self:
        """output = log2(data), elementwise."""

    def log_softmax(
        self,
        *,
        axis: int = -1,
        temperature: float | None = None,
        name: str | None = None,
    ) -> Self:
        """output = x - max x - log(sum of exp(x - max x)) along the axis, x = data /
        temperature.
        """

    def max(
        self,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        name: str | None = None,
    ) -> Self:
        """output = maximum of data over the axes."""

    def mean(
        self,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        name: str | None = None,
    ) -> Self:
        """output = mean of data over the axes."""

    def min(
        self,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        name: str | None = None,
    ) -> Self:
        """output = minimum of data over the axes."""

    def nanprod(
        self,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        name: str | None = None,
    ) -> Self:
        """output = product of data over the axes without NaN elements."""

    def nansum(
        self,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        name: str | None = None,
    ) -> Self:
        """output = sum of data over the axes without NaN elements."""

    def norm(
        self,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        ord: int = 2,
        name: str | None = None,
    ) -> Self:
        """output = sum of |data| (ord 1) or square root of the sum of data^2 (ord 2) over the
        axes.
        """

    def ones_like(self, *, name: str | None = None) -> Self:
        """output = 1, elementwise."""

    def prod(
        self,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        name: str | None = None,
    ) -> Self:
        """output = product of data over the axes."""

    def radians(self, *, name: str | None = None) -> Self:
        """output = data * pi / 180, elementwise."""

    def rcbrt(self, *, name: str | None = None) -> Self:
        """output = 1 / cbrt(data), elementwise."""

    def reciprocal(self, *, name: str | None = None) -> Self:
        """output = 1 / data, elementwise."""

    def relu(self, *, name: str | None = None) -> Self:
        """output = max(data, 0), elementwise."""

    def rint(self, *, name: str | None = None) -> Self:
        """output = data rounded to the nearest integer, halves down, elementwise."""

    def round(self, *, name: str | None = None) -> Self:
        """output = data rounded to the nearest integer, halves away from 0, elementwise."""

    def rsqrt(self, *, name: str | None = None) -> Self:
        """output = data^(-1/2); NaN below 0, elementwise."""

    def sigmoid(self, *, name: str | None = None) -> Self:
        """output = 1 / (1 + exp(-data)), elementwise."""

    def sign(self, *, name: str | None = None) -> Self:
        """output = -1, 0 or 1 with the sign of data; 0 of NaN, elementwise."""

    def sin(self, *, name: str | None = None) -> Self:
        """output = sin(data), data in radians, elementwise."""

    def sinh(self, *, name: str | None = None) -> Self:
        """output = sinh(data), elementwise."""

    def softmax(
        self,
        *,
        axis: int = -1,
        temperature: float | None = None,
        name: str | None = None,
    ) -> Self:
        """output = exp(x - max x) / sum of exp(x - max x) along the axis, x = data /
        temperature.
        """

    def split(
        self,
        *,
        num_outputs: int,
        axis: int = 1,
        squeeze_axis: bool = False,
        name: str | None = None,
    ) -> Self:
        """output0, output1, ... = consecutive slices of equal size of data along `axis`."""

    def sqrt(self, *, name: str | None = None) -> Self:
        """output = data^(1/2); NaN below 0, elementwise."""

    def square(self, *, name: str | None = None) -> Self:
        """output = data^2, elementwise."""

    def squeeze(self, *, axis: int | Sequence[int] | None = None, name: str | None = None) -> Self:
        """output = data without its axes of size 1; at least one axis remains."""

    def sum(
        self,
        *,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        name: str | None = None,
    ) -> Self:
        """output = sum of data over the axes."""

    def swapaxes(self, *, dim1: int = 0, dim2: int = 0, name: str | None = None) -> Self:
        """output = data with two axes exchanged."""

    def tan(self, *, name: str | None = None) -> Self:
        """output = tan(data), data in radians, elementwise."""

    def tanh(self, *, name: str | None = None) -> Self:
        """output = tanh(data), elementwise."""

    def trunc(self, *, name: str | None = None) -> Self:
        """output = data rounded towards 0, elementwise."""

    def zeros_like(self, *, name: str | None = None) -> Self:
        """output = 0, elementwise."""

    def reshape(
        self,
        *,
        shape: Sequence[int] = (),
        reverse: bool = False,
        target_shape: Sequence[int] = (),
        keep_highest: bool = False,
        name: str | None = None,
    ) -> Self:
        """output = data in row-major order with the shape `shape`, which has as many elements."""

    def transpose(self, *, axes: Sequence[int] = (), name: str | None = None) -> Self:
        """output = data with its axes permuted: axis i of the output is axis `axes[i]` of data."""
