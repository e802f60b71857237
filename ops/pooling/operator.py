"""Pooling over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from mxrun.base.description import PerAxis
from mxrun.base.params import Parameters
from mxrun.base.tensor import PartialShape, Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.foreign_names import in_dimensions
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes, Precision
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.ops.sums import running_sums
from mxrun.ops.window import AxisOrder, NonNegative, Positive, Window, require_axes, require_layout

T = TypeVar("T")
Array = npt.NDArray[Any]


class PoolingParameters(Parameters):
    """Parameters of Pooling (MXNet's names and defaults)."""

    kernel: Annotated[tuple[Positive, ...], PerAxis(), Field(max_length=3)] = Field(
        default=(),
        description="Window size: (w,), (h, w) or (d, h, w); not needed by global_pool.",
        examples=[(2, 2)],
    )
    pool_type: Literal["max", "avg", "sum", "lp"] = Field(
        default="max", description="Reduction applied to each window."
    )
    global_pool: bool = Field(
        default=False,
        description="One window over all positions; kernel, stride and pad have no effect.",
    )
    cudnn_off: bool = Field(
        default=False, description="Accepted for MXNet's models; has no effect."
    )
    pooling_convention: Literal["valid", "full", "same"] = Field(
        default="valid",
        description="Rounds the output size down (valid) or up (full); same gives size / "
        "stride, rounded up, for one axis without pad.",
    )
    stride: Annotated[tuple[Positive, ...], PerAxis()] = Field(
        default=(), description="Distance between windows along each axis; default: 1."
    )
    pad: Annotated[tuple[NonNegative, ...], PerAxis()] = Field(
        default=(),
        description="Positions added at both ends of each axis; for max and avg fewer than the "
        "kernel's; default: 0.",
    )
    p_value: Annotated[int, Field(ge=1, le=3)] | None = Field(
        default=None, description="Exponent p of lp pooling, which requires it; default: none."
    )
    count_include_pad: bool | None = Field(
        default=None, description="Whether padding counts in avg; default: true."
    )
    layout: AxisOrder | None = Field(
        default=None,
        description="Axis order; channels follow the batch; default: by the number of axes.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> PoolingParameters:
        if self.pool_type == "lp" and self.p_value is None:
            raise ValueError("pool_type lp needs p_value")
        if self.global_pool:
            return self
        rank = len(self.kernel)
        if rank == 0:
            raise ValueError("kernel is needed unless global_pool is true")
        require_axes(rank, stride=self.stride, pad=self.pad)
        # As in MXNet: a window of padding only has neither a maximum nor an average.
        if self.pool_type in ("max", "avg"):
            for pad, size in zip(self.pad, self.kernel, strict=False):
                if pad >= size:
                    rule = f"for pool_type {self.pool_type} (sum and lp take any)"
                    raise ValueError(f"pad {pad} must be smaller than its kernel {size} {rule}")
        if self.pooling_convention == "same" and (rank != 1 or any(self.pad)):
            raise ValueError("pooling_convention same is for one axis without pad")
        require_layout(self.layout, rank)
        return self

    def window(self, spatial: Shape) -> Window:
        """Return the window geometry for data's spatial axes, with MXNet's defaults."""
        ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
        if self.global_pool:
            return Window(kernel=spatial, stride=ones, dilate=ones, pad=zeros)
        return Window(
            kernel=self.kernel, stride=self.stride or ones, dilate=ones, pad=self.pad or zeros
        )

    def margin(self, window: Window) -> Shape:
        """Return the number of positions beyond the data, per axis, that avg counts."""
        return tuple(pad if self.count_include_pad is not False else 0 for pad in window.pad)


@register(
    "Pooling",
    foreign={
        "Pooling: {pool_type: max, kernel: 2, stride: 2}": in_dimensions("maxpool", "maxpooling")
        + " poolingv1",
        "Pooling: {pool_type: avg, kernel: 2, stride: 2}": in_dimensions(
            "avgpool", "averagepool", "averagepooling"
        ),
        "Pooling: {pool_type: avg, global_pool: true}": in_dimensions(
            "globalavgpool", "globalaveragepool", "globalaveragepooling", "adaptiveavgpool"
        ),
        "Pooling: {pool_type: max, global_pool: true}": in_dimensions(
            "globalmaxpool", "globalmaxpooling", "adaptivemaxpool"
        ),
    },
)
class PoolingProperty(OperatorProperty[PoolingParameters]):
    """output[n, c, y] = max, average, sum or p-norm (sum of x^p)^(1/p) of data's window at y.

    data [N, C, spatial...], output [N, C, windows...]. Padding is never a maximum and adds zero to
    a sum. If several elements equal the maximum, the first in row-major order receives the
    gradient.

    The maximum of a window with NaN is NaN, and infinities are maxima like other numbers. MXNet
    1.9.1 skips NaN, and its maxima are not below the lowest finite number, which is also the
    maximum of a window entirely outside the data.

    Backward reads the output's gradient, data and output (for avg and sum only the gradient).

    Fast float32 implementations: oneDNN for avg; compiled loops for max, sum and the averages that
    oneDNN lacks. lp has only the NumPy body. bfloat16: max, and avg where oneDNN supports it.
    """

    type_string = "Pooling"
    family = OperatorFamily.POOLING
    parameter_type = PoolingParameters
    precision = Precision.INHERIT

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer batch and channels in both directions; sizes forward, backward for stride 1."""
        data, output = self._ranked(inputs[0], outputs[0])
        if data is None or output is None:
            return PartialInference([data], [output], [])
        rank = len(data) - 2
        data = unify("data", data, (*output[:2], *(None,) * rank), "output")
        sizes = [self._sizes(axis, data, output) for axis in range(rank)]
        data = unify("data", data, (None, None, *(size for size, _ in sizes)), "output")
        output = unify(
            "output",
            output,
            (*data[:2], *(count for _, count in sizes)),
            "data, kernel, stride, pad and pooling_convention",
        )
        return PartialInference([data], [output], [])

    def _ranked(
        self, data: PartialShape, output: PartialShape
    ) -> tuple[PartialShape, PartialShape]:
        rank = len(self.parameters.kernel) + 2
        if self.parameters.kernel:
            rule = f"[batch, channel] and the {rank - 2} axes of the kernel"
            data = unify("data", data, (None,) * rank, rule)
        if data is None and output is None:
            return None, None
        rank = len(data or output or ())
        if not 3 <= rank <= 5:
            raise ShapeContradiction(
                "data", show(data or output), "rank 3 to 5", "[batch, channel] and spatial axes"
            )
        unknown: PartialShape = (None,) * rank
        return unify("data", data, unknown, "output"), unify("output", output, unknown, "data")

    def _sizes(
        self, axis: int, data: Dimensions, output: Dimensions
    ) -> tuple[int | None, int | None]:
        if self.parameters.global_pool:
            return data[axis + 2], 1
        convention = self.parameters.pooling_convention
        window = self.parameters.window((1,) * (len(data) - 2))
        size, count = data[axis + 2], output[axis + 2]
        if size is not None:
            windows = window.count(axis, data, round_up=convention == "full")
            return size, -(-size // window.stride[axis]) if convention == "same" else windows
        if count is not None and window.stride[axis] == 1:
            gain = 0 if convention == "same" else window.kernel[axis] - 1 - 2 * window.pad[axis]
            size = count + gain
            if size < 1:
                rule = f"kernel {list(window.kernel)} and pad {list(window.pad)}"
                raise ShapeContradiction("output", show(output), f"at least {1 - gain}", rule)
        return size, count

    @property
    def is_max_selection(self) -> bool:
        """True for max, unless a window can be entirely outside the data."""
        return self.parameters.pool_type == "max" and self.parameters.pooling_convention != "full"

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad; for max and lp also data and output."""
        if self.parameters.pool_type in ("avg", "sum"):
            return [out_grad[0]]
        return [out_grad[0], in_data[0], out_data[0]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One per element of every window."""
        window = self.parameters.window(in_shapes[0][2:])
        return math.prod(out_shapes[0]) * math.prod(window.kernel)

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Pooling(self.parameters)


class Pooling(Operator):
    """NumPy body: one pass over all windows per kernel position."""

    def __init__(self, parameters: PoolingParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = maxima, averages, sums or norms of the windows."""
        data, shape = call.inputs.data, call.outputs.output.shape
        window = self.parameters.window(data.shape[2:])
        kind, power = self.parameters.pool_type, self.parameters.p_value or 1
        result = running_sums(shape, data.dtype)
        if kind == "max":
            result = np.full(shape, -np.inf, data.dtype)
        empty = np.ones(shape[2:], bool)
        for _, read, written in window.regions(data.shape[2:], shape[2:]):
            empty[written] = False
            if kind == "max":
                np.maximum(result[written], data[read], out=result[written])
            else:
                result[written] += data[read] ** power if kind == "lp" else data[read]
        if kind == "max":
            result[..., empty] = np.finfo(data.dtype).min
        if kind == "avg":
            result /= self._counts(window, data.shape[2:], shape[2:], data.dtype)
        if kind == "lp":
            result = _root(result, power)
        call.store(output=result.astype(data.dtype))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: max: grad at the first maximum; avg: grad / count; sum: grad; lp: grad
        * (x / output)^(p - 1).
        """
        if not call.is_requested("data"):
            return
        gradient, target = call.output_gradients.output, call.input_gradients.data
        spatial, windows = target.shape[2:], gradient.shape[2:]
        window = self.parameters.window(spatial)
        result = running_sums(target.shape, gradient.dtype)
        regions = window.regions(spatial, windows)
        if self.parameters.pool_type in ("avg", "sum"):
            if self.parameters.pool_type == "avg":
                gradient = gradient / self._counts(window, spatial, windows, gradient.dtype)
            for _, read, written in regions:
                result[read] += gradient[written]
        elif self.parameters.pool_type == "max":
            data, output = call.inputs.data, call.outputs.output
            waiting = np.ones(gradient.shape, bool)
            for _, read, written in regions:
                equal = (data[read] == output[written]) | np.isnan(data[read])
                chosen = equal & waiting[written]
                result[read] += np.where(chosen, gradient[written], 0)
                waiting[written] &= ~chosen
        else:
            data, output = call.inputs.data, call.outputs.output
            power = self.parameters.p_value or 1
            # A window of zeros has output 0 and, as in MXNet, zero gradient for p > 1.
            safe = np.where(output == 0, 1, output)
            for _, read, written in regions:
                slope = (data[read] / safe[written]) ** (power - 1)
                result[read] += gradient[written] * slope
        call.store(data=result.astype(target.dtype))

    def _counts(self, window: Window, spatial: Shape, windows: Shape, dtype: Any) -> Array:
        """Return the divisors of avg: each window's elements within the (padded) input."""
        counts = np.ones((), dtype)
        margins = self.parameters.margin(window)
        for axis, (size, number, margin) in enumerate(zip(spatial, windows, margins, strict=True)):
            start = np.arange(number) * window.stride[axis] - window.pad[axis]
            length = np.minimum(start + window.kernel[axis], size + margin) - np.maximum(
                start, -margin
            )
            # A window beyond the end (possible with `full`) is empty, and its sum is zero.
            counts = counts[..., None] * np.maximum(length, 1).astype(dtype)
        return counts


def _root(value: Array, power: int) -> Array:
    if power == 1:
        return value
    root: Array = np.sqrt(value) if power == 2 else np.cbrt(value)
    return root
