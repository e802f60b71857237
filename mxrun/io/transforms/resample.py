"""Writing of windows: the pixels of a chunk of images, moved once into float32 rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.codegen.host_loop import HostLoop
from mxrun.io.transforms import resample_loops as loops
from mxrun.io.transforms.windows import ImageWindows, Int64, WindowAxis

# Arguments of the loops that are scratch memory.
_SCRATCH = ("bounds", "weights", "line", "ring", "sums")
_AXES = ((loops.AXIS_Y, loops.START_Y, "y"), (loops.AXIS_X, loops.START_X, "x"))


@dataclass(frozen=True)
class WindowTable:
    """Windows as the loops read them: tables of integers [n, INTEGERS] and reals [n, REALS]."""

    integers: Int64
    reals: NDArray[np.float64]

    @classmethod
    def of(cls, windows: ImageWindows, images: Int64, steps: Any, targets: Int64) -> WindowTable:
        """Return the table for images that begin at the elements `images` and are written to the
        elements `targets`.

        steps: elements from a channel, a row and a column to the next one, [n] each or numbers.
        """
        integers = np.empty((len(images), loops.INTEGERS), np.int64)
        reals = np.empty((len(images), loops.REALS))
        integers[:, loops.IMAGE], integers[:, loops.TARGET] = images, targets
        for column, step in zip(
            (loops.STEP_CHANNEL, loops.STEP_Y, loops.STEP_X), steps, strict=True
        ):
            integers[:, column] = step
        integers[:, loops.MIRRORED] = windows.mirrored
        scaled = np.zeros(len(images), np.bool_)
        for at, real, name in _AXES:
            axis: WindowAxis = getattr(windows, name)
            for column, values in (
                (loops.LOW, axis.low),
                (loops.HIGH, axis.high),
                (loops.SIZE, axis.size),
                (loops.OFFSET, axis.offset),
                (loops.OUT, axis.out),
            ):
                integers[:, at + column] = values
            reals[:, real], reals[:, real + 1] = axis.start, axis.length
            scaled |= (axis.length != axis.size) | (axis.start != np.floor(axis.start))
        integers[:, loops.SCALED] = scaled
        return cls(integers, reals)

    def leave_out(self, rows: NDArray[np.bool_]) -> None:
        """Give images that are not written no scratch memory; rows: which these are, [n]."""
        self.integers[rows, loops.SCALED] = 0

    def replace(self, row: int, other: WindowTable) -> None:
        """Replace one window by that of a table of one."""
        self.integers[row], self.reals[row] = other.integers[0], other.reals[0]

    def scratch_sizes(self, channels: int) -> dict[str, int]:
        """Return the elements of the loops' scratch memory, by argument, for the largest window."""
        scaled = self.integers[:, loops.SCALED] != 0
        if not scaled.any():
            return dict.fromkeys(_SCRATCH, 0)
        lanes = 4 if channels == 3 else channels
        y, x = (self.integers[:, at : at + 5] for at, _, _ in _AXES)
        taps_y, taps_x = (
            2 * np.maximum(self.reals[:, real + 1] / np.maximum(axis[:, loops.SIZE], 1), 1) + 1
            for axis, (_, real, _) in zip((y, x), _AXES, strict=True)
        )
        pitch = x[:, loops.OUT] * lanes
        sizes = {
            "bounds": y[:, loops.OUT] + x[:, loops.OUT],
            "weights": y[:, loops.OUT] * taps_y + x[:, loops.OUT] * taps_x,
            # One more, which a vector of four reads for the last pixel.
            "line": (x[:, loops.HIGH] - x[:, loops.LOW]) * channels + 1,
            "ring": pitch * taps_y,
            "sums": pitch,
        }
        return {name: int(size[scaled].max(initial=0)) for name, size in sizes.items()}


class WindowWriter:
    """Writer of windows of one kind of images; for one thread.

    channels: of an image. A value is (pixel * scale - mean[channel]) / deviation[channel], in
    float32. The loops hold no interpreter lock.
    """

    def __init__(
        self,
        dtype: np.dtype[Any],
        channels: int,
        scale: float,
        normalization: tuple[NDArray[np.float32], NDArray[np.float32]],
    ) -> None:
        self._is_bytes = dtype == np.uint8
        self._channels, self._scale = channels, np.float32(scale)
        self._means, self._deviations = normalization
        self._sizes: dict[str, int] = {}
        # The loops of windows that are copied, and of those that are resampled.
        self._loops: list[HostLoop] = []

    def open(self, table: WindowTable, target: NDArray[np.float32]) -> None:
        """Set the windows that `write` writes, and the rows that they are written to."""
        self._scaled = table.integers[:, loops.SCALED] != 0
        sizes = table.scratch_sizes(self._channels)
        if not self._loops or any(size > self._sizes[name] for name, size in sizes.items()):
            self._sizes = {
                name: max(size, self._sizes.get(name, 0)) for name, size in sizes.items()
            }
            self._loops = self._new_loops()
        for loop in self._loops:
            loop.set("integers", table.integers)
            loop.set("reals", table.reals)
            loop.set("target", target)

    def write(self, image: NDArray[Any], first: int, count: int = 1) -> None:
        """Write windows `first` .. `first + count` - 1 of an array in row-major order."""
        scaled = self._scaled[first : first + count]
        for loop, has_windows in zip(self._loops, (not scaled.all(), scaled.any()), strict=True):
            if has_windows:
                loop.set("image", image)
                loop.set("first", first)
                loop.set("count", count)
                loop()

    def _new_loops(self) -> list[HostLoop]:
        known: dict[str, Any] = {
            "first": 0,
            "count": 0,
            "channels": self._channels,
            "scale": float(self._scale),
            "integers": None,
            "reals": None,
            "image": None,
            "means": self._means,
            "deviations": self._deviations,
            "target": None,
            **{
                name: np.zeros(size, np.int64 if name == "bounds" else np.float32)
                for name, size in self._sizes.items()
            },
        }
        if self._is_bytes:
            return [
                HostLoop(loop, loops.ByteMoves(**known), unlocked=True)
                for loop in (loops.byte_copy_loop, loops.byte_resample_loop)
            ]
        return [
            HostLoop(loop, loops.FloatMoves(**known), unlocked=True)
            for loop in (loops.float_copy_loop, loops.float_resample_loop)
        ]
