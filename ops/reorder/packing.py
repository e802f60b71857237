"""Packed layouts that the compiled loops support, and the loops' arguments.

A matrix or an ungrouped kernel [rows, columns, taps...] is supported if its packed layout consists
of lines of sixteen words at constant distances within every tile of sixteen positions along both
axes, whatever the nesting of blocks.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mxrun.base.blocked import Blocked
from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import Shape
from mxrun.codegen.vectors import LANES
from mxrun.operator.native_kernel import LoopPart, Scratch, Slot
from mxrun.ops.reorder.loops import Tiles, pack_loop, unpack_loop

_FLOAT = 4

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lines:
    """Geometry of a packed layout for the loops, in words.

    lane_axis: 0 for rows, 1 for columns; word: elements per word; padded: positions of the other
    axis with their padding; lane: distance between lines; tap: distance between taps; starts:
    offsets of the tiles along each axis.
    """

    lane_axis: int
    word: int
    padded: int
    lane: int
    tap: int
    starts: tuple[tuple[int, ...], tuple[int, ...]]

    @staticmethod
    def of(layout: Blocked, word: int) -> Lines | None:
        """Return the geometry of a layout, or None if the loops do not support it."""
        if not layout.blocks or not {axis for _, axis in layout.blocks} <= {0, 1}:
            return None
        innermost = layout.blocks[-1][1]
        lane_axis = innermost if word == 1 else 1 - innermost
        across, along = layout.offsets(lane_axis), layout.offsets(1 - lane_axis)
        if len(across) % LANES or _step(across, LANES) != word or len(along) % word:
            return None
        tap, lane = _tap_step(layout), _step(along[::word], LANES // word)
        if (
            tap is None
            or lane is None
            or np.any(along[::word] + word - 1 != along[word - 1 :: word])
        ):
            return None
        ahead, beside = (tuple(map(int, each[::LANES] // word)) for each in (across, along))
        starts = (beside, ahead) if lane_axis else (ahead, beside)
        return Lines(
            lane_axis=lane_axis,
            word=word,
            padded=len(along),
            lane=lane // word,
            tap=tap // word,
            starts=starts,
        )

    @property
    def elements(self) -> int:
        """Number of elements of one tap, with padding."""
        return LANES * len(self.starts[self.lane_axis]) * self.padded


def moving_part(
    lines: Lines, shape: Shape, data: Slot, output: Slot, packs: bool, device: DeviceDescription
) -> LoopPart:
    """Return the loop that packs a tensor of `shape`, or unpacks one with rows as lane axis."""
    rows, columns, *kernel = shape
    taps, tiles = math.prod(kernel), tuple(map(len, lines.starts))
    tasks = min(device.tasks_for_elements(math.prod(shape)), math.prod(tiles))
    floats = LANES * LANES * taps
    plain, packed = (data, output) if packs else (output, data)
    arguments = Tiles(
        plain_data=plain,
        packed_data=packed,
        rows=rows,
        columns=columns,
        taps=taps,
        row_tiles=tiles[0],
        column_tiles=tiles[1],
        row_starts=lines.starts[0],
        column_starts=lines.starts[1],
        lane_axis=lines.lane_axis,
        word=lines.word,
        padded=lines.padded,
        lane=lines.lane,
        tap=lines.tap,
        floats_per_worker=floats,
        lines=Scratch(),
    )
    scratch = _FLOAT * floats * device.workers(tasks)
    return LoopPart(pack_loop if packs else unpack_loop, arguments, tasks, scratch)


def _tap_step(layout: Blocked) -> int | None:
    """Return the distance between taps of a kernel, or None if it is not constant."""
    pairs = zip(layout.sizes[2:], layout.strides[2:], strict=True)
    axes = [(size, stride) for size, stride in pairs if size > 1]
    if any(outer != size * inner for (_, outer), (size, inner) in pairwise(axes)):
        return None
    return axes[-1][1] if axes else 0


def _step(offsets: Offsets, group: int) -> int | None:
    """Return the distance between positions of every group, or None if it is not constant."""
    steps = np.diff(offsets)[np.arange(1, len(offsets)) % group != 0]
    if not len(steps):
        return 0
    return int(steps[0]) if np.all(steps == steps[0]) else None
