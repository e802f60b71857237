"""A plugin: ROI pooling, no elementwise map, two inputs and two outputs, by the full path.

As a user would write it; loading it as a plugin registers `roi_pooling`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Float32, Parameters
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import GradientKind, OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import register
from mxrun.operator.shape import unify

T = TypeVar("T")
Size = Annotated[int, Field(ge=1)]
Array = npt.NDArray[Any]


class RoiPoolingParameters(Parameters):
    """Parameters of ROI pooling (MXNet's ROIPooling)."""

    pooled_size: tuple[Size, Size] = Field(description="Rows and columns.", examples=[(2, 2)])
    spatial_scale: Float32 = Field(
        default=1.0, description="Positions in data by positions in the image.", gt=0, le=1
    )


@register("roi_pooling")
class RoiPoolingProperty(OperatorProperty[RoiPoolingParameters]):
    """output[r, c, i, j] = the largest number of data in cell (i, j) of region r, else 0.

    data [N, C, H, W], rois [R, 5]: batch index, left, top, right, bottom; output and the hidden
    positions [R, C, rows, columns]. A cell may be empty, and a region of no sample. Backward reads
    the output's gradient, rois and positions.
    """

    type_string = "roi_pooling"
    parameter_type = RoiPoolingParameters

    def list_arguments(self) -> tuple[str, ...]:
        """The feature map and the regions."""
        return ("data", "rois")

    def list_outputs(self) -> tuple[str, ...]:
        """The pooled cells; where their largest numbers are, hidden."""
        return ("output", "positions")

    @property
    def num_visible_outputs(self) -> int:
        """The cells alone."""
        return 1

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer one pooled map per region."""
        data = unify("data", inputs[0], (None,) * 4, "a batch of maps")
        rois = unify("rois", inputs[1], (None, 5), "regions")
        assert data is not None
        assert rois is not None
        cells = (rois[0], data[1], *self.parameters.pooled_size)
        first, second = (
            unify(name, shape, cells, "a map for each region")
            for name, shape in zip(self.list_outputs(), outputs, strict=True)
        )
        both = unify("output", first, second, "positions")
        assert both is not None
        data = unify("data", data, (None, both[1], None, None), "output")
        rois = unify("rois", rois, (both[0], 5), "output")
        return PartialInference([data, rois], [both, both], [])

    def infer_type(
        self, inputs: list[str | None], outputs: list[str | None]
    ) -> tuple[list[str | None], list[str | None]]:
        """Infer integer positions."""
        common = inputs[0] or inputs[1] or outputs[0]
        return [common, common], [common, "int32"]

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """Regions are not trained."""
        return (GradientKind.COMPUTES, GradientKind.ZERO)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Declare no data: forward saves the positions of the maxima."""
        return [out_grad[0], in_data[1], out_data[1]]

    def create_operator(self) -> Operator:
        """Loops over cells."""
        return RoiPooling(self.parameters)


class RoiPooling(Operator):
    """Compute one cell at a time."""

    def __init__(self, parameters: RoiPoolingParameters) -> None:
        self.parameters = parameters

    def _cells(self, roi: Array, height: int, width: int) -> Iterator[tuple[int, int, Any, Any]]:
        """Row and column of each cell with its rows and columns of data."""
        left, top, right, bottom = np.floor(roi[1:] * self.parameters.spatial_scale + 0.5)
        rows, columns = self.parameters.pooled_size
        tall = max(bottom - top + 1, 1) / rows
        wide = max(right - left + 1, 1) / columns
        for i, j in itertools.product(range(rows), range(columns)):
            ends = ((top, tall, i, height), (left, wide, j, width))
            yield (
                i,
                j,
                *(
                    slice(
                        int(np.clip(np.floor(k * step) + first, 0, limit)),
                        int(np.clip(np.ceil((k + 1) * step) + first, 0, limit)),
                    )
                    for first, step, k, limit in ends
                ),
            )

    def forward(self, call: ForwardCall) -> None:
        """Write the maximum of each cell and its index in the map; -1 for an empty cell."""
        data, rois = call.inputs
        _, channels, height, width = data.shape
        shape = (len(rois), channels, *self.parameters.pooled_size)
        output, positions = np.zeros(shape, data.dtype), np.full(shape, -1, "int32")
        places = np.arange(height * width).reshape(height, width)
        for r, roi in enumerate(rois):
            for i, j, rows, columns in self._cells(roi, height, width):
                if not 0 <= roi[0] < len(data):
                    break
                cell = data[int(roi[0]), :, rows, columns].reshape(channels, -1)
                if cell.size:
                    best = cell.argmax(axis=1)
                    output[r, :, i, j] = cell[np.arange(channels), best]
                    positions[r, :, i, j] = places[rows, columns].ravel()[best]
        call.store(output=output)
        call.store(positions=positions)

    def backward(self, call: BackwardCall) -> None:
        """Add each gradient at the position of its maximum."""
        grad, rois, positions = (
            call.output_gradients.output,
            call.inputs.rois,
            call.outputs.positions,
        )
        if not call.is_requested("data"):
            return
        gradient = np.zeros(call.input_gradients.data.shape, grad.dtype)
        flat = gradient.reshape(*gradient.shape[:2], -1)
        for r, c, i, j in np.argwhere(positions >= 0):
            flat[int(rois[r, 0]), c, positions[r, c, i, j]] += grad[r, c, i, j]
        call.store(data=gradient)
