"""Convolution over one, two or three spatial axes."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from mxrun.base.tensor import PartialShape
from mxrun.operator.foreign_names import in_dimensions
from mxrun.operator.property import (
    Precision,
)
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, unify
from mxrun.ops.convolution.base import WindowProductParameters, WindowProductProperty

Array = npt.NDArray[Any]


# Names in other frameworks.
_USUAL = "num_filter: 16, kernel: 3"
_FOREIGN = {
    f"Convolution: {{{_USUAL}}}": f"{in_dimensions('conv', 'lazyconv')} convolutionv1",
    f"Convolution: {{{_USUAL}, num_group: 16}}, one group for each channel": in_dimensions(
        "depthwiseconv"
    ),
    f"Convolution: {{{_USUAL}, num_group: 16}}, then Convolution: {{num_filter: 32, kernel: 1}}": (
        in_dimensions("separableconv")
    ),
}


@register("Convolution", foreign=_FOREIGN)
class ConvolutionProperty(WindowProductProperty[WindowProductParameters]):
    """output[n, o, y] = bias[o] + sum over c, k of weight[o, c, k] * data[n, c, y*stride + k*dilate
    - pad]. The positions y and k have one coordinate per spatial axis; c runs over the channels of
    o's group.

    data [N, C, spatial...], weight [num_filter, C / num_group, kernel...], bias [num_filter],
    output [N, num_filter, spatial...]. Backward reads the output's gradient, data and weight.
    """

    type_string = "Convolution"
    parameter_type = WindowProductParameters
    precision = Precision.BFLOAT16
    transposed = False
    rule_of_sizes = "data, kernel, stride, dilate and pad"

    def infer_weight(self, data: Dimensions, weight: PartialShape) -> tuple[int | None, Dimensions]:
        """Weight has num_filter kernels over the channels of one group."""
        p = self.parameters
        weight = unify("weight", weight, (p.num_filter, None, *p.kernel), "num_filter and kernel")
        channels = data[1]
        if channels is None and weight[1] is not None:
            channels = weight[1] * p.num_group
        if channels is not None:
            self.require_groups(data, channels)
            inferred = (None, channels // p.num_group, *(None,) * len(p.kernel))
            weight = unify("weight", weight, inferred, "data's channels / num_group")
        return channels, weight

    def infer_sizes(
        self, axis: int, data: Dimensions, output: Dimensions
    ) -> tuple[int | None, int | None]:
        """Infer sizes forward, and backward if the stride is 1."""
        window = self.parameters.window()
        size, count = data[axis + 2], output[axis + 2]
        if size is not None:
            return size, window.count(axis, data)
        if count is not None and window.stride[axis] == 1:
            size = count - 1 + window.extent(axis) - 2 * window.pad[axis]
        return size, count
