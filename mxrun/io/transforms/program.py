"""Programs that make rows of batches from records: read, decode, transform, write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.loading.python_transforms import ThreadTransforms, TransformRunner
from mxrun.io.transforms.base import ChunkTransform, ValueTransform, WindowTransform
from mxrun.io.transforms.boxes import ImageMove, move_boxes
from mxrun.io.transforms.chunk import Item, Items, RecordChunk, Stack, stacked
from mxrun.io.transforms.color import Normalize
from mxrun.io.transforms.decoded import DecodedImages
from mxrun.io.transforms.pipeline import Pipeline, TransformStep, values
from mxrun.io.transforms.stages import ChunkStage, PythonStage, Stage, ValueStage
from mxrun.io.transforms.window_stage import Misfit, WindowStage

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Raw:
    """Records as they are stored, in the order that they were asked for.

    failed: errors of those that could not be read, by their position.
    """

    items: Items
    failed: dict[int, UserError] = field(default_factory=dict)


class RowErrors(list[tuple[int, UserError]]):
    """Rows that failed with their errors, and the `moves` of the images."""

    def __init__(
        self, errors: Sequence[tuple[int, UserError]] = (), moves: Sequence[ImageMove] = ()
    ) -> None:
        super().__init__(errors)
        self.moves = moves


class RowProgram:
    """Program that makes the rows of one input for chunks of records; frozen and thread-safe.

    A row is a function of seed, epoch and record: it does not depend on the chunk.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        name: str,
        column: Field | LazyField,
        spec: TensorSpec,
        seed: int,
        python: TransformRunner | None = None,
        keeps_decoded: bool = False,
    ) -> None:
        """name: of the field that `column` holds. spec: of a row. python: runs users' transforms,
        by default on the thread that calls `write`. keeps_decoded: whether the decoded images of a
        small column are kept; its files must not change.
        """
        self._name, self._column, self._spec, self._seed = name, column, spec, seed
        self._python = python or ThreadTransforms()
        self._records: NDArray[Any] | None = None
        self._boxes = False
        channels = 3
        if isinstance(column, Field):
            self._records = np.ascontiguousarray(column.records)
            self._boxes = column.boxes
        elif column.shape and column.shape[0] is not None:
            channels = column.shape[0]
        self._channels = channels
        self._decoded = _decoded(pipeline, name, column) if keeps_decoded else None
        self._stages, self._tail = _compile(tuple(pipeline.of(name)), spec)

    @property
    def runs_python(self) -> bool:
        """Whether a transform is a user's own, which Python applies once per record."""
        return any(isinstance(stage, PythonStage) for stage in self._stages)

    def read(self, records: Int64) -> Raw:
        """Read records: the stage of input and output. Errors are kept for each record."""
        if self._records is not None:
            return Raw(Stack(self._records, records))
        assert isinstance(self._column, LazyField)
        items: list[Item] = [None] * len(records)
        left: Iterable[int] = range(len(records))
        failed: dict[int, UserError] = {}
        if self._decoded is not None:
            images, is_kept = self._decoded.of(records)
            if is_kept.all():
                return Raw(Stack(images, records))
            for row in np.flatnonzero(is_kept).tolist():
                items[row] = images[records[row]]
            left = np.flatnonzero(~is_kept).tolist()
        elif (found := self._column.arrays(records)) is not None:
            arrays, is_read = found
            if is_read.all():
                return Raw(Stack(arrays, np.arange(len(records))))
            for row in np.flatnonzero(is_read).tolist():
                items[row] = arrays[row]
            left = np.flatnonzero(~is_read).tolist()
        for row in left:
            try:
                item = self._column.record(int(records[row]))
                items[row] = item if isinstance(item, EncodedImage) else np.asarray(item)
            except UserError as error:
                failed[row] = error
        return Raw(items if failed else stacked(items, self._column.shape), failed)

    def write(
        self,
        raw: Raw,
        records: Int64,
        epochs: Int64,
        target: NDArray[Any],
        moves: Sequence[ImageMove] = (),
    ) -> RowErrors:
        """Decode and transform records, and write them to the rows of `target`, [n, *spec.shape].

        epochs: in which each record is drawn. moves: of the images whose boxes the records are, if
        they are boxes. Returns the rows that failed and their errors, in order; these rows are
        zero, all others are complete.
        """
        if self._boxes and isinstance(raw.items, Stack):
            move_boxes(raw.items.gathered(), moves, target)
            return RowErrors()
        chunk = RecordChunk(
            self._name,
            self._seed,
            epochs,
            records,
            self._channels,
            self._column.scale,
            self._python,
            dict(raw.failed),
            decoded=self._decoded,
        )
        items = raw.items
        for stage in self._stages:
            items = stage.run(items, chunk)
        if self._tail is None:
            self._finish(items, chunk, target)
        else:
            self._tail.write(items, chunk, target)
        for row in chunk.failed:
            target[row] = 0
        return RowErrors(sorted(chunk.failed.items()), chunk.moves)

    def _finish(self, items: Items, chunk: RecordChunk, target: NDArray[Any]) -> None:
        """Write the results of the last stage, in any form."""
        shape = target.shape[1:]
        if isinstance(items, Stack) and items.records.shape[1:] == shape:
            found = items.gathered()
            target[...] = found if chunk.scale is None else values(found, chunk.scale)
            return
        for row, record in enumerate(chunk.arrays(items)):
            if record is None:
                continue
            if record.shape != shape:
                chunk.failed[row] = Misfit(shape, record.shape)
            else:
                target[row] = record if chunk.scale is None else values(record, chunk.scale)


class _Tail:
    """Last stages, which write directly to the rows of a batch: windows, then values."""

    def __init__(self, windows: WindowStage, stages: Sequence[ValueStage]) -> None:
        self._windows, self._stages = windows, stages

    def write(self, items: Items, chunk: RecordChunk, target: NDArray[np.float32]) -> None:
        """Write the rows."""
        self._windows.write(items, chunk, target, [stage.step for stage in self._stages])
        for stage in self._stages:
            stage.change(target, chunk)


def _decoded(pipeline: Pipeline, name: str, column: Field | LazyField) -> DecodedImages | None:
    """Return the memory for decoded images, if their files are always decoded at full size."""
    if isinstance(column, Field) or None not in column.shape:
        return None
    transforms = [step.transform for step in pipeline.of(name)]
    resamples = any(isinstance(each, WindowTransform) and each.resamples for each in transforms)
    return None if resamples else DecodedImages(column.count)


def _compile(
    steps: tuple[TransformStep, ...], spec: TensorSpec
) -> tuple[list[Stage], _Tail | None]:
    """Divide transforms into stages; the tail is None if the last ones give results of any form."""
    stages: list[Stage] = []
    at = 0
    while at < len(steps):
        stage, at = _next_stage(steps, at)
        stages.append(stage)
    if spec.dtype != "float32":
        return stages, None
    trailing = len(stages)
    while trailing and isinstance(stages[trailing - 1], ValueStage):
        trailing -= 1
    tail = [stage for stage in stages[trailing:] if isinstance(stage, ValueStage)]
    if trailing and isinstance(windows := stages[trailing - 1], WindowStage):
        return stages[: trailing - 1], _Tail(windows, tail)
    if trailing:
        return stages, None
    # Records as they are: the first `normalize` is done while they are copied.
    if tail and isinstance(tail[0].step.transform, Normalize):
        return [], _Tail(WindowStage((), tail[0].step), tail[1:])
    return [], _Tail(WindowStage(), tail)


def _next_stage(steps: tuple[TransformStep, ...], at: int) -> tuple[Stage, int]:
    """Return the stage that begins at a step, and the position after its last one."""
    step, first = steps[at], at
    transform = step.transform
    if isinstance(transform, ValueTransform):
        return ValueStage(step), at + 1
    if isinstance(transform, ChunkTransform):
        return ChunkStage(step), at + 1
    if not isinstance(transform, WindowTransform):
        on_values = transform.works_on_values
        while at < len(steps) and _is_python(steps[at], on_values):
            at += 1
        return PythonStage(steps[first:at]), at
    padded = False
    while at < len(steps) and isinstance(moved := steps[at].transform, WindowTransform):
        if padded and moved.resamples:
            break
        padded |= moved.pads
        at += 1
    if at < len(steps) and isinstance(steps[at].transform, Normalize):
        return WindowStage(steps[first:at], steps[at]), at + 1
    return WindowStage(steps[first:at]), at


def _is_python(step: TransformStep, on_values: bool) -> bool:
    transform = step.transform
    known = isinstance(transform, (ValueTransform, ChunkTransform, WindowTransform))
    return not known and transform.works_on_values == on_values
