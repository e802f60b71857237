"""Writing of windows: the pixels of a chunk of images, moved once into float32 rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.codegen.host_loop import HostLoop
from mxrun.io.transforms import resample_loops as loops
from mxrun.io.transforms.windows import ImageWindows, Int64, WindowAxis

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

    def replace(self, row: int, other: WindowTable) -> None:
        """Replace one window by that of a table of one."""
        self.integers[row], self.reals[row] = other.integers[0], other.reals[0]

    def scratch_sizes(self) -> tuple[int, int, int]:
        """Return the largest number of results, of filter weights, and of pixels of a row pass."""
        results = weights = 0
        for at, real, _ in _AXES:
            size = np.maximum(self.integers[:, at + loops.SIZE], 1)
            out = self.integers[:, at + loops.OUT]
            ratio = self.reals[:, real + 1] / size
            taps = 2 * np.maximum(ratio, 1).astype(np.int64) + 3
            results += int(out.max(initial=0))
            weights += int((out * taps).max(initial=0))
        y, x = loops.AXIS_Y, loops.AXIS_X + loops.OUT
        heights = self.integers[:, y + loops.HIGH] - self.integers[:, y + loops.LOW]
        return results, weights, int((heights * self.integers[:, x]).max(initial=0))


class WindowWriter:
    """Writer of windows of one kind of images; for one thread.

    channels: of an image. A value is (pixel * scale - mean[channel]) / deviation[channel], in
    float32. has_code: whether machine code writes them, without the interpreter lock, or NumPy.
    """

    def __init__(
        self,
        dtype: str,
        channels: int,
        scale: float,
        normalization: tuple[NDArray[np.float32], NDArray[np.float32]],
        has_code: bool,
    ) -> None:
        self._is_bytes = dtype == "uint8"
        self._channels, self._scale = channels, np.float32(scale)
        self._means, self._deviations = normalization
        self._has_code = has_code
        self._sizes = (0, 0, 0)
        self._loop: HostLoop | None = None

    def open(self, table: WindowTable, target: NDArray[np.float32]) -> None:
        """Set the windows that `write` writes, and the rows that they are written to."""
        self._table, self._target = table, target
        if not self._has_code:
            return
        sizes = table.scratch_sizes()
        if self._loop is None or any(a > b for a, b in zip(sizes, self._sizes, strict=True)):
            self._sizes = tuple(map(max, sizes, self._sizes))  # type: ignore[assignment]
            self._loop = self._new_loop()
        self._loop.set("integers", table.integers)
        self._loop.set("reals", table.reals)
        self._loop.set("target", target)

    def write(self, image: NDArray[Any], first: int, count: int = 1) -> None:
        """Write windows `first` .. `first + count` - 1 of an array in row-major order."""
        if self._loop is None:
            for number in range(first, first + count):
                self._write_one(image, number)
            return
        self._loop.set("image", image)
        self._loop.set("first", first)
        self._loop.set("count", count)
        self._loop()

    def _new_loop(self) -> HostLoop:
        results, weights, rows = self._sizes
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
            "bounds": np.zeros(2 * results, np.int64),
            "weights": np.zeros(weights),
        }
        if not self._is_bytes:
            floats = loops.FloatMoves(**known, sums=np.zeros(results))
            return HostLoop(loops.float_windows_loop, floats, unlocked=True)
        windows = loops.ByteMoves(
            **known,
            factors=np.zeros(weights, np.int32),
            rows=np.zeros(rows * self._channels, np.uint8),
            sums=np.zeros(results, np.int32),
        )
        return HostLoop(loops.byte_windows_loop, windows, unlocked=True)

    def _write_one(self, image: NDArray[Any], number: int) -> None:
        """Write one window by NumPy: the same numbers as the loops."""
        integers, reals = self._table.integers[number], self._table.reals[number]
        axes = [_AxisNumbers.of(integers, reals, at, real) for at, real, _ in _AXES]
        itemsize = image.itemsize
        source: NDArray[Any] = np.ndarray(
            (self._channels, axes[0].high, axes[1].high),
            image.dtype,
            image,
            int(integers[loops.IMAGE]) * itemsize,
            tuple(int(integers[at]) * itemsize for at in range(1, 4)),
        )
        moved = source
        # Columns first: rows of the image become shorter.
        for axis, position in ((axes[1], 2), (axes[0], 1)):
            if integers[loops.SCALED]:
                moved = axis.resampled(moved, position)
            else:
                moved = axis.shifted(moved, position)
        if integers[loops.MIRRORED]:
            moved = moved[:, :, ::-1]
        values = moved.astype(np.float32) * self._scale
        shape = (-1, 1, 1)
        values = (values - self._means.reshape(shape)) / self._deviations.reshape(shape)
        at = int(integers[loops.TARGET])
        self._target.reshape(-1)[at : at + values.size] = values.reshape(-1)


@dataclass(frozen=True)
class _AxisNumbers:
    """One axis of one window."""

    low: int
    high: int
    size: int
    offset: int
    out: int
    start: float
    length: float

    @classmethod
    def of(cls, integers: Any, reals: Any, at: int, real: int) -> _AxisNumbers:
        return cls(*integers[at : at + 5].tolist(), *reals[real : real + 2].tolist())

    def shifted(self, source: NDArray[Any], position: int) -> NDArray[Any]:
        """Return the results of an axis that is not resampled."""
        canvas = np.arange(self.offset, self.offset + self.out)
        inside = (canvas >= 0) & (canvas < self.size)
        found = source.take(np.where(inside, canvas + int(self.start), 0), axis=position)
        return np.where(_along(inside, position), found, np.zeros((), source.dtype))

    def resampled(self, source: NDArray[Any], position: int) -> NDArray[Any]:
        """Return the results of an axis: bytes by integer weights, else float32 by float64."""
        ratio = self.length / max(self.size, 1)
        support = max(ratio, 1.0)
        narrow, start, count = 1.0 / support, self.start - self.low, self.high - self.low
        canvas = np.arange(self.offset, self.offset + self.out)
        center = start + (canvas + 0.5) * ratio
        first = np.maximum((center - support + 0.5).astype(np.int64), 0)
        counts = np.minimum((center + support + 0.5).astype(np.int64), count) - first
        counts = np.where((canvas >= 0) & (canvas < self.size), counts, 0)
        taps = np.arange(counts.max(initial=0))[:, np.newaxis]
        distance = np.abs((taps + first - center + 0.5) * narrow)
        weights = np.where((distance < 1) & (taps < counts), 1 - distance, 0.0)
        # In the order of the loop, as the sum's last bit decides.
        totals = np.cumsum(weights, axis=0)[-1] if len(weights) else np.ones(self.out)
        weights = weights / np.where(totals > 0, totals, 1)
        is_bytes = source.dtype == np.uint8
        if is_bytes:
            weights = (0.5 + weights * (1 << loops.BITS)).astype(np.int64)
        shape = [*source.shape]
        shape[position] = self.out
        sums = np.full(shape, 1 << (loops.BITS - 1) if is_bytes else 0.0)
        sums = sums.astype(np.int64) if is_bytes else sums
        for tap, weight in enumerate(weights):
            at = np.minimum(self.low + first + tap, self.high - 1)
            sums += source.take(at, axis=position) * _along(weight, position)
        if is_bytes:
            return np.where(_along(counts > 0, position), sums >> loops.BITS, 0).astype(np.uint8)
        return sums.astype(np.float32)


def _along(values: NDArray[Any], position: int) -> NDArray[Any]:
    return values.reshape(-1, 1) if position == 1 else values
