"""SliceChannel: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def slice_channel(p: Any, inputs: list[Array]) -> list[Array]:
    """Return slices of the axis, copied part by part."""
    slices = list(np.moveaxis(inputs[0], p.axis, 0))
    size = len(slices) // p.num_outputs
    parts = [slices[index * size : (index + 1) * size] for index in range(p.num_outputs)]
    if p.squeeze_axis:
        return [part for (part,) in parts]
    return [np.moveaxis(np.stack(part), 0, p.axis) for part in parts]


ROWS: list[Row] = [
    *rows(
        "SliceChannel",
        ({"num_outputs": 2}, (3, 4)),
        ({"num_outputs": 3, "squeeze_axis": True}, (2, 3, 4)),
        ({"num_outputs": 3}, (2, 6, 2, 2)),
        ({"num_outputs": 2, "axis": -1}, (2, 3, 4)),
        ({"num_outputs": 1, "axis": 0}, (2, 3)),
        ({"num_outputs": 3, "axis": 0, "squeeze_axis": True}, (3, 2)),
        ({"num_outputs": 2, "axis": 1, "squeeze_axis": False}, (30, 1200)),
    ),
]

REFERENCES: dict[str, Reference] = {"SliceChannel": slice_channel}
