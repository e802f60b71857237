"""Chunks of records on their way through the stages of a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import UserError
from mxrun.io.images.decode import decode_image
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.loading.python_transforms import TransformRunner
from mxrun.io.transforms.base import Record, RecordShape, Uniform
from mxrun.io.transforms.boxes import ImageMove
from mxrun.io.transforms.decoded import DecodedImages
from mxrun.io.transforms.draws import Draws, draw_uniform, transform_key
from mxrun.io.transforms.pipeline import TransformStep, values


@dataclass(frozen=True)
class Stack:
    """Records of one shape: rows `rows`, int64 [n], of an array [records, ...]."""

    records: NDArray[Any]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def gathered(self) -> NDArray[Any]:
        """Return the records of the chunk, [n, ...]."""
        return self.records.take(self.rows, axis=0)


# A record of a chunk; None for one that failed.
Item = Record | EncodedImage | None
Items = Stack | Sequence[Item]
# Bytes of a record up to which copying it into a stack takes less time than a call for it alone.
_SMALL_BYTES = 1 << 14


def stacked(items: Sequence[Item], shape: RecordShape) -> Items:
    """Return small images of bytes and of the known `shape` as a stack, others as they are."""
    if len(shape) != 3 or None in shape or math.prod(size or 0 for size in shape) > _SMALL_BYTES:
        return items
    arrays = [item for item in items if isinstance(item, np.ndarray)]
    if len(arrays) < len(items) or any(a.shape != shape or a.dtype != np.uint8 for a in arrays):
        return items
    return Stack(np.stack(arrays), np.arange(len(arrays)))


@dataclass
class RecordChunk:
    """Records of one field that are transformed together, and the errors of those that failed.

    column: channels of encoded images, and the scale of bytes. moves: of the geometric transforms
    so far. decoded: keeps decoded images.
    """

    name: str
    seed: int
    epochs: NDArray[np.int64]
    records: NDArray[np.int64]
    channels: int
    scale: float | None
    python: TransformRunner
    failed: dict[int, UserError] = field(default_factory=dict)
    moves: list[ImageMove] = field(default_factory=list)
    decoded: DecodedImages | None = None

    def __len__(self) -> int:
        return len(self.records)

    def uniform(self, step: TransformStep, count: int) -> Uniform:
        """Return the random numbers of a transform, [n, count]."""
        if not count:
            return np.empty((len(self), 0))
        key = transform_key(self.seed, step.position)
        return draw_uniform(key, self.epochs, self.records, count)

    def draws(self, row: int) -> Draws:
        """Return the random streams of the record of a row."""
        return Draws(self.seed, int(self.epochs[row]), int(self.records[row]))

    def array(self, row: int, item: Item) -> Record | None:
        """Return a record as an array, decoded; None, with an error noted, if it is damaged."""
        if not isinstance(item, EncodedImage):
            return item
        try:
            return decode_image(item, self.channels)
        except UserError as error:
            self.failed[row] = error
            return None

    def arrays(self, items: Items) -> list[Record | None]:
        """Return records as arrays, decoded."""
        if isinstance(items, Stack):
            return list(items.gathered())
        return [self.array(row, item) for row, item in enumerate(items)]

    def values(self, record: Record) -> NDArray[np.float32]:
        """Return a record as float32, which may be the record itself."""
        return values(record, self.scale).astype(np.float32, copy=False)
