"""Stage of geometric transforms: windows are planned for a chunk, then each pixel moves once."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.tensor import Shape
from mxrun.codegen.host_loop import HostLoop
from mxrun.io.images.decode import MAXIMUM_PIXELS
from mxrun.io.transforms.base import WindowTransform
from mxrun.io.transforms.boxes import ImageMove
from mxrun.io.transforms.chunk import Item, Items, RecordChunk, Stack
from mxrun.io.transforms.color import Normalize
from mxrun.io.transforms.pipeline import TransformStep
from mxrun.io.transforms.resample import WindowTable, WindowWriter
from mxrun.io.transforms.resample_loops import StackCopies, stack_loop
from mxrun.io.transforms.sources import Sources, as_image
from mxrun.io.transforms.windows import ImageWindows, Int64

Values = NDArray[np.float32]


class WindowStage:
    """Geometric transforms, then the scale of bytes, then `normalize`: float32 results.

    Without transforms it takes records of any shape. Thread-safe: each thread has its own memory.
    """

    def __init__(
        self, steps: Sequence[TransformStep] = (), normalize: TransformStep | None = None
    ) -> None:
        """normalize: the step of a `normalize`, if one follows."""
        self._steps = [(step, _window(step)) for step in steps]
        self._following = () if normalize is None else (normalize,)
        found = None if normalize is None else normalize.transform
        self._normalize = found if isinstance(found, Normalize) else Normalize()
        self._local = threading.local()

    def run(self, items: Items, chunk: RecordChunk) -> list[Item]:
        """Return the results of the records, of any shapes; None for those that failed."""
        items = _as_images(items, chunk)
        sources = self._sources(items, chunk)
        windows = self._plan(sources, chunk)
        for row in np.flatnonzero(windows.y.out * windows.x.out > MAXIMUM_PIXELS).tolist():
            # A strip of few pixels becomes very long if its shorter side is enlarged.
            got = f"{windows.x.out[row]} x {windows.y.out[row]}"
            problem, limit = "the resized image is too large", f"at most {MAXIMUM_PIXELS} pixels"
            sources.fail(row, UserError(Diagnostic(problem, None, limit, got)))
        shapes = np.stack([sources.channels, windows.y.out, windows.x.out])
        for row in np.flatnonzero(sources.alive).tolist() if self._following else ():
            _check(sources, row, self._following, tuple(shapes[:, row].tolist()))
        ends = np.cumsum(np.where(sources.alive, shapes.prod(axis=0), 0))
        memory = np.empty(int(ends[-1]), np.float32)
        starts = np.concatenate([[0], ends[:-1]])
        self._move(items, sources, windows, starts, memory, chunk)
        return [
            memory[start:end].reshape(shape) if alive else None
            for start, end, shape, alive in zip(
                starts, ends, shapes.T.tolist(), sources.alive, strict=True
            )
        ]

    def write(
        self,
        items: Items,
        chunk: RecordChunk,
        target: Values,
        following: Sequence[TransformStep] = (),
    ) -> None:
        """Write the results to the rows of `target`; those of other shapes are errors.

        following: transforms that are applied to `target` next, which may explain such an error.
        """
        shape = target.shape[1:]
        if isinstance(items, Stack) and self._only_scales(items, chunk, shape):
            self._copy(items, chunk, target)
            return
        items = _as_images(items, chunk)
        sources = self._sources(items, chunk)
        windows = self._plan(sources, chunk)
        channels, height, width = as_image(shape)
        fits = (sources.channels == channels) & (windows.y.out == height)
        fits &= (windows.x.out == width) & (sources.is_image() == (len(shape) == 3))
        for row in np.flatnonzero(sources.alive & ~fits).tolist():
            result = sources.channels[row], windows.y.out[row], windows.x.out[row]
            found = sources.shape(row)
            got = tuple(map(int, result)) if found is None else found
            if _check(sources, row, (*self._following, *following), got):
                sources.fail(row, Misfit(shape, got))
        for row in np.flatnonzero(sources.alive).tolist() if self._following else ():
            if _check(sources, row, self._following, shape):
                break
        rows = np.arange(len(items)) * math.prod(shape)
        self._move(items, sources, windows, rows, target, chunk)

    def _only_scales(self, items: Stack, chunk: RecordChunk, shape: Shape) -> bool:
        """Return whether records of bytes become rows of a shape without being moved."""
        if self._steps or chunk.failed:
            return False
        if items.records.dtype != np.uint8 or items.records.shape[1:] != shape:
            return False
        try:
            for step in self._following:
                step.transform.output(shape)
        except UserError:
            return False
        return True

    def _copy(self, items: Stack, chunk: RecordChunk, target: Values) -> None:
        """Write records of bytes, scaled and normalised: no table of windows is needed."""
        channels, height, width = as_image(target.shape[1:])
        sides = np.full(len(items), height), np.full(len(items), width)
        chunk.moves.append(ImageMove(ImageWindows.whole(*sides), *sides))
        scale = 1.0 if chunk.scale is None else chunk.scale
        copies: dict[Any, HostLoop] = self._local.__dict__.setdefault("copies", {})
        loop = copies.get((channels, height * width, scale))
        if loop is None:
            means, deviations = self._normalize.channel_values(channels)
            loop = copies[channels, height * width, scale] = HostLoop(
                stack_loop,
                StackCopies(
                    count=0,
                    channels=channels,
                    size=height * width,
                    scale=float(np.float32(scale)),
                    records=None,
                    rows=None,
                    means=means,
                    deviations=deviations,
                    target=None,
                ),
                unlocked=True,
            )
        loop.set("count", len(items))
        loop.set("records", items.records)
        loop.set("rows", items.rows)
        loop.set("target", target)
        loop()

    def _sources(self, items: Items, chunk: RecordChunk) -> Sources:
        def check(shape: Shape) -> None:
            step, transform = self._steps[0]
            try:
                transform.output(shape)
            except UserError as error:
                raise step.locate(error) from error

        return Sources(items, chunk, check if self._steps else None)

    def _plan(self, sources: Sources, chunk: RecordChunk) -> ImageWindows:
        windows = ImageWindows.whole(sources.heights, sources.widths)
        for step, transform in self._steps:
            heights, widths = windows.y.out, windows.x.out
            unfit = transform.unfit(heights, widths) & sources.alive
            for row in np.flatnonzero(unfit).tolist():
                shape = int(sources.channels[row]), int(heights[row]), int(widths[row])
                try:
                    transform.output(shape)
                except UserError as error:
                    sources.fail(row, step.locate(error))
            transform.move(windows, chunk.uniform(step, transform.draws))
        chunk.moves.append(ImageMove(windows, sources.heights, sources.widths))
        return windows

    def _move(
        self,
        items: Items,
        sources: Sources,
        windows: ImageWindows,
        targets: Int64,
        memory: Values,
        chunk: RecordChunk,
    ) -> None:
        """Write the results of the records that are alive to elements `targets` of memory."""
        if not sources.alive.any():
            return
        channels = sources.channels
        if isinstance(items, Stack):
            size = math.prod(items.records.shape[1:])
            steps = _steps(channels, sources.heights, sources.widths, np.False_)
            table = WindowTable.of(windows, items.rows * size, steps, targets)
            writer = self._writer(items.records.dtype, int(channels[0]), chunk)
            writer.open(table, memory)
            writer.write(items.records, 0, len(items))
            return
        divisors = np.where(sources.reducible(), windows.divisors(), 1)
        sizes = sources.heights, sources.widths
        decoded = -(-sizes[0] // divisors), -(-sizes[1] // divisors)
        reduced = windows.reduced(divisors, decoded) if (divisors > 1).any() else windows
        steps = _steps(channels, *decoded, sources.is_interleaved())
        table = WindowTable.of(reduced, np.zeros_like(targets), steps, targets)
        table.leave_out(~sources.alive)
        buffer = self._buffer(int((decoded[0] * decoded[1] * channels).max()))
        opened: dict[tuple[np.dtype[Any], int], WindowWriter] = {}
        for row in np.flatnonzero(sources.alive).tolist():
            image = sources.pixels(row, int(divisors[row]), buffer)
            if image is None:
                continue
            if divisors[row] > 1 and image.shape[0] != decoded[0][row]:
                # A damaged file, which was decoded at its full size.
                part = slice(row, row + 1)
                steps = _steps(channels[part], sizes[0][part], sizes[1][part], np.True_)
                table.replace(
                    row, WindowTable.of(windows.part(part), targets[part] * 0, steps, targets[part])
                )
            key = image.dtype, int(channels[row])
            if key not in opened:
                opened[key] = self._writer(*key, chunk)
                opened[key].open(table, memory)
            opened[key].write(image, row)

    def _writer(self, dtype: np.dtype[Any], channels: int, chunk: RecordChunk) -> WindowWriter:
        """Return the calling thread's writer of one kind of images."""
        writers: dict[Any, WindowWriter] = self._local.__dict__.setdefault("writers", {})
        is_bytes = dtype == np.uint8
        if not is_bytes and dtype != np.float32:
            raise InternalError(f"images of {dtype}")
        scale = 1.0 if chunk.scale is None or not is_bytes else chunk.scale
        key = dtype, channels, scale
        if key not in writers:
            values = self._normalize.channel_values(channels)
            writers[key] = WindowWriter(dtype, channels, scale, values)
        return writers[key]

    def _buffer(self, size: int) -> NDArray[np.uint8]:
        """Return memory of the calling thread for the pixels of an image."""
        found: NDArray[np.uint8] | None = self._local.__dict__.get("buffer")
        if found is None or found.size < size:
            found = self._local.__dict__["buffer"] = np.empty(size, np.uint8)
        return found


class Misfit(UserError):
    """Error of a row whose shape is not that of the network's input."""

    def __init__(self, expected: Shape, got: Shape) -> None:
        problem = "the record does not fit the network's input"
        hint = "resize, center_crop, ... in `transforms` bring records to one size"
        super().__init__(Diagnostic(problem, None, str(list(expected)), str(list(got)), hint=hint))
        self.got = got


def _as_images(items: Items, chunk: RecordChunk) -> Items:
    """Return records that can be moved: bytes with a scale, or float32."""
    if isinstance(items, Stack) and items.records.dtype not in (np.uint8, np.float32):
        return [chunk.values(record) for record in items.gathered()]
    return items


def _check(sources: Sources, row: int, steps: Sequence[TransformStep], shape: Shape) -> bool:
    """Return whether `steps` take a result of a shape; note the error of one that does not."""
    for step in steps:
        try:
            step.transform.output(shape)
        except UserError as error:
            sources.fail(row, step.locate(error))
            return False
    return True


def _window(step: TransformStep) -> WindowTransform:
    if not isinstance(step.transform, WindowTransform):
        raise InternalError(f"{step.transform.name} is not a geometric transform")
    return step.transform


def _steps(channels: Int64, heights: Int64, widths: Int64, is_interleaved: Any) -> list[Int64]:
    """Return the elements from a channel, a row and a column of images to the next one."""
    return [
        np.where(is_interleaved, 1, heights * widths),
        np.where(is_interleaved, widths * channels, widths),
        np.where(is_interleaved, channels, 1),
    ]
