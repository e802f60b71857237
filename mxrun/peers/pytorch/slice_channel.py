"""SliceChannel."""

from __future__ import annotations

import math

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def slice_channel(parameters: MXNetParameters, data: Tensor) -> tuple[Tensor, ...]:
    """Split into equal parts along one axis; `squeeze_axis` removes the axis."""
    axis = int(parameters.number("axis", 1))
    size = data.shape[axis] // int(parameters.number("num_outputs", math.nan))
    parts = data.split(size, axis)
    if parameters.flag("squeeze_axis", False):
        return tuple(part.squeeze(axis) for part in parts)
    return tuple(parts)


OPERATORS: Operators = {
    "SliceChannel": slice_channel,
}
