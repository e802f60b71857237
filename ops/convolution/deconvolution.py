"""Deconvolution: transposed convolution over one, two or three spatial axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from mxrun.base.description import PerAxis
from mxrun.base.params import Int32
from mxrun.base.tensor import PartialShape, Shape
from mxrun.operator.foreign_names import in_dimensions
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.ops.convolution.base import WindowProductParameters, WindowProductProperty
from mxrun.ops.window import NonNegative, Window, require_axes


class DeconvolutionParameters(WindowProductParameters):
    """Parameters of Deconvolution (MXNet's names and defaults).

    kernel, stride, dilate and pad are those of the corresponding convolution.
    """

    adj: Annotated[tuple[NonNegative, ...], PerAxis()] = Field(
        default=(),
        description="Positions added at the end of each axis of the output, fewer than stride; "
        "default: 0.",
    )
    target_shape: Annotated[tuple[NonNegative, ...], PerAxis()] = Field(
        default=(),
        description="Sizes of the output, from which pad and adj are then computed; default: not "
        "given, as if all are 0.",
    )
    workspace: Int32 = Field(
        default=512,
        ge=0,
        description="Limit in MiB of the temporary space of a product: an implementation that "
        "needs more is used only if there is no other. Also limits how many images the NumPy "
        "body unfolds at once.",
    )
    no_bias: bool = Field(default=True, description="Omit the bias.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kernel": [3, 3], "num_filter": 8, "stride": [2, 2], "pad": [1, 1], "adj": [1, 1]}
            ]
        }
    )

    @model_validator(mode="after")
    def _sizes_consistent(self) -> DeconvolutionParameters:
        axes = len(self.kernel)
        require_axes(axes, adj=self.adj, target_shape=self.target_shape)
        if any(self.target_shape):
            if not all(self.target_shape):
                raise ValueError("target_shape has a 0 beside other sizes")
            return self
        for adj, stride in zip(self.adj, self.window().stride, strict=False):
            if adj >= stride:
                raise ValueError(f"adj {adj} must be smaller than its stride {stride}")
        return self

    def output_size(self, axis: int, size: int) -> int:
        """Return stride * (size - 1) + extent - 2 * pad + adj, or the size in target_shape."""
        if any(self.target_shape):
            return self.target_shape[axis]
        adj = self.adj[axis] if self.adj else 0
        return self._full_size(axis, size) - 2 * self.window().pad[axis] + adj

    def excess(self, axis: int, size: int) -> int:
        """Return the number of positions that windows write beyond the output: 2 * pad - adj."""
        return self._full_size(axis, size) - self.output_size(axis, size)

    def window_over(self, spatial: Shape) -> Window:
        """Return the geometry for data's spatial axes; pad = ceil(excess / 2) with target_shape."""
        if not any(self.target_shape):
            return self.window()
        pads = tuple((self.excess(axis, size) + 1) // 2 for axis, size in enumerate(spatial))
        return replace(self.window(), pad=pads)

    def _full_size(self, axis: int, size: int) -> int:
        window = self.window()
        return window.stride[axis] * (size - 1) + window.extent(axis)


@register(
    "Deconvolution",
    foreign={
        "Deconvolution: {num_filter: 16, kernel: 2, stride: 2}": in_dimensions(
            "convtranspose", "lazyconvtranspose"
        )
        + " conv1dtranspose conv2dtranspose conv3dtranspose",
    },
)
class DeconvolutionProperty(WindowProductProperty[DeconvolutionParameters]):
    """output[n, o, y*stride + k*dilate - pad] = sum of weight[c, o, k] * data[n, c, y] over y, k
    and the channels c of o's group, plus bias[o]. This is the data gradient of a Convolution.

    data [N, C, spatial...], weight [C, num_filter / num_group, kernel...], bias [num_filter],
    output [N, num_filter, stride * (spatial - 1) + dilate * (kernel - 1) + 1 - 2 * pad + adj...].
    With target_shape, 2 * pad - adj has the value that gives this size, and adj (0 or 1) is its
    parity. Backward reads the output's gradient, data and weight.
    """

    type_string = "Deconvolution"
    parameter_type = DeconvolutionParameters
    transposed = True
    rule_of_sizes = "data, kernel, stride, dilate, pad, adj and target_shape"

    def infer_weight(self, data: Dimensions, weight: PartialShape) -> tuple[int | None, Dimensions]:
        """Weight has one kernel per channel of data, over the filters of one group."""
        p = self.parameters
        filters = p.num_filter // p.num_group
        rule = "num_filter / num_group and kernel"
        weight = unify("weight", weight, (None, filters, *p.kernel), rule)
        inferred = (data[1], None, *(None,) * len(p.kernel))
        weight = unify("weight", weight, inferred, "data's channels")
        if weight[0] is not None:
            self.require_groups(data, weight[0])
        return weight[0], weight

    def infer_sizes(
        self, axis: int, data: Dimensions, output: Dimensions
    ) -> tuple[int | None, int | None]:
        """Infer sizes forward, and backward without target_shape."""
        p = self.parameters
        size, given = data[axis + 2], output[axis + 2]
        if size is None:
            if any(p.target_shape):
                return None, p.target_shape[axis]
            return self._size_for(axis, output), given
        positions, excess = p.output_size(axis, size), p.excess(axis, size)
        if positions < 1:
            raise ShapeContradiction("data", show(data), "larger", f"pad {list(p.pad)}")
        if any(p.target_shape):
            rule = f"target_shape {list(p.target_shape)}"
            if excess < 0:
                raise ShapeContradiction("data", show(data), "larger", rule)
            if excess % 2 >= p.window().stride[axis]:
                inferred = f"[..., {positions + excess % 2}, ...]"
                raise ShapeContradiction("output", show(output), inferred, f"{rule} at stride 1")
        return size, positions

    def _size_for(self, axis: int, output: Dimensions) -> int | None:
        """Return data's size for the given output; raises ShapeContradiction if none fits."""
        size = output[axis + 2]
        if size is None:
            return None
        stride, one = self.parameters.window().stride[axis], self.parameters.output_size(axis, 1)
        if size < one or (size - one) % stride:
            rule = "kernel, stride, dilate, pad and adj"
            inferred = f"{one} and a multiple of {stride} along axis {axis + 2}"
            raise ShapeContradiction("output", show(output), inferred, rule)
        return (size - one) // stride + 1
