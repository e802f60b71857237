"""Boxes of objects, which geometric transforms of their image move as well.

A label of boxes is float32 [objects, 5 or more]: class, left, top, right and bottom in 0..1 of the
image's sides, and further numbers; rows after the last box are -1, as MXNet's ImageDetIter has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.io.transforms.windows import Float64, ImageWindows, Int64, WindowAxis

# A box that keeps no more than this share of its area is left out: min_eject_coverage of MXNet's
# DetRandomCropAug.
MIN_COVERAGE = 0.3
_PADDING = -1.0


@dataclass(frozen=True)
class ImageMove:
    """Windows of n images, and the images' sizes before, [n]."""

    windows: ImageWindows
    heights: Int64
    widths: Int64


def move_boxes(
    boxes: NDArray[np.float32], moves: Sequence[ImageMove], target: NDArray[np.float32]
) -> None:
    """Write the boxes [n, objects, numbers] of n images to `target`, as the images were moved.

    Boxes are clipped to the image. Those that keep at most MIN_COVERAGE of their area, or no area,
    are left out; the others keep their order.
    """
    corners = boxes[:, :, 1:5].astype(np.float64)
    present = boxes[:, :, 0] >= 0
    coverage = np.ones(present.shape)
    for move in moves:
        x, y = corners[:, :, 0::2], corners[:, :, 1::2]
        corners[:, :, 0::2] = _moved(x, move.windows.x, move.widths)
        corners[:, :, 1::2] = _moved(y, move.windows.y, move.heights)
        mirrored = move.windows.mirrored
        corners[mirrored, :, 0::2] = 1 - corners[mirrored, :, 2::-2]
        before = _areas(corners)
        np.clip(corners, 0, 1, out=corners)
        coverage *= _areas(corners) / np.where(before > 0, before, 1)
    if moves:
        present &= (coverage > MIN_COVERAGE) & (_areas(corners) > 0)
    # A stable sort moves the boxes that are left to the front, in their order.
    order = np.argsort(~present, axis=1, kind="stable")[:, :, np.newaxis]
    moved = boxes.copy()
    moved[:, :, 1:5] = corners
    moved[~present] = _PADDING
    target[...] = np.take_along_axis(moved, order, axis=1)


def _moved(places: Float64, axis: WindowAxis, sides: Int64) -> Float64:
    """Return places [n, objects, 2] in 0..1 of images of `sides`, in 0..1 of their windows."""
    ratio, start, offset, out = (
        values[:, np.newaxis, np.newaxis]
        for values in (axis.ratio, axis.start, axis.offset, np.maximum(axis.out, 1))
    )
    sources = places * sides[:, np.newaxis, np.newaxis]
    moved: Float64 = ((sources - start) / ratio - offset) / out
    return moved


def _areas(corners: Float64) -> Float64:
    sides = np.maximum(corners[:, :, 2:] - corners[:, :, :2], 0)
    areas: Float64 = sides[:, :, 0] * sides[:, :, 1]
    return areas
