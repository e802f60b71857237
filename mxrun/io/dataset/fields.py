"""Columns of a data set: arrays in memory, and records that are read on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.dataset.pixels import (
    WHITE,
    are_unit_values,
    check_white,
    checked_pixels,
    implied_white,
    pixels_in_range,
    unit_values,
    unlike_training,
)
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.transforms.base import RecordShape

# Reads arrays of records that are found as they are expected: see `LazyField`.
ArrayReader = Callable[
    [NDArray[np.int64], NDArray[np.int64]], tuple[NDArray[Any], NDArray[np.bool_]]
]
# Records of a column that say whether 1 is white in its images.
_SOME = 16
# Reads the record of a number.
RecordReader = Callable[[int], NDArray[Any] | EncodedImage]
# Specs of the network's inputs by name, of one record: without the batch axis.
Inputs = Mapping[str, TensorSpec]


@dataclass(frozen=True, eq=False)
class Field:
    """Column of a data set in memory: `records` [count, *shape].

    With a `scale` a batch holds float32(record) * float32(scale), so that bytes are stored as
    bytes. Without one it holds the records unchanged. white: the pixel value of white, if the
    records are images; a batch then holds values in 0..1, see `images`. A scale other than 1 is
    that of images. boxes: whether the records
    are boxes of objects, which geometric transforms of the images move; see
    `mxrun.io.transforms.boxes`. dtype: that of integers in a batch, if the records are stored as
    smaller ones; these may be overlapping windows over one array. starts: which of `records`,
    windows at every position of an array, are those of the column; None if all are.
    """

    records: NDArray[Any]
    scale: float | None = None
    white: float | None = None
    boxes: bool = False
    dtype: str = ""
    starts: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "white", implied_white(self.scale, self.white))

    def __len__(self) -> int:
        return len(self.records if self.starts is None else self.starts)

    def part(self, rows: slice | NDArray[np.int64]) -> Field:
        """Return the column restricted to some records; of windows none is copied."""
        if self.starts is None:
            return replace(self, records=self.records[rows])
        return replace(self, starts=self.starts[rows])

    def taken(self, rows: int | slice | NDArray[np.int64]) -> NDArray[Any]:
        """Return some records."""
        found: NDArray[Any] = self.records[rows if self.starts is None else self.starts[rows]]
        return found

    @classmethod
    def images(cls, pixels: NDArray[Any], white: float = WHITE) -> Field:
        """Return images [count, *shape] in whose pixels 0 is black and `white` is white.

        A batch holds float32(pixel) * float32(1 / white), whatever the dtype of the pixels.
        """
        if pixels.dtype == np.uint8:
            return cls(pixels, 1 / white, white)
        return cls(unit_values(pixels, white), None, white)

    def read_as(self, white: float | None, where: str) -> Field:
        """Return the column as training reads its records: as images of `white`, or as numbers.

        Fractions from 0 to 1 are images whose white is 1, see `are_unit_values`. where: name of the
        column for messages. Raises UserError for numbers that are no pixels.
        """
        if (self.white is None) == (white is None):
            return self
        if white is not None:
            white = 1.0 if are_unit_values(self.records, white) else white
            return Field.images(checked_pixels(self.records, white, where), white)
        if self.scale is None:
            raise UserError(unlike_training(where))
        return replace(self, scale=1.0, white=None)

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype of one record in a batch."""
        dtype = self.dtype or self.records.dtype.name
        return TensorSpec(self.records.shape[1:], dtype if self.scale is None else "float32")

    @property
    def distinct(self) -> NDArray[Any]:
        """The records; of overlapping windows each element once, [elements]."""
        rows = self.records
        size = rows[0].size
        if rows.strides[0] >= size * rows.itemsize:
            return rows
        count = (len(rows) - 1) * rows.strides[0] // rows.itemsize + size
        return as_strided(rows, (count,), (rows.itemsize,), writeable=False)


@dataclass(frozen=True, eq=False)
class LazyField:
    """Column that is read from files: `read(index)` returns one record and is thread-safe.

    A record is an array, or an image that is decoded when its batch is made. `shape` is that of a
    record, with None where records differ. `read` raises UserError naming the file and the record.
    The column is the records `start` .. `start + count` - 1 of those that `read` can return, or the
    `count` records whose numbers are in `rows`, int64. `content()` computes a digest of the
    records' content. `locate(index)` returns the place of a record.

    `read_arrays(indices, position)`, if there is one, reads many records at once, which takes far
    less time for small ones: it returns arrays [n, *shape] and which of them it has read, bool [n].
    The others must be read by `read`, which says what is wrong with them. position: int64 [1],
    receives the position in `indices` of the record that is being read.

    as_stored: whether images are not turned as their EXIF data say.
    """

    read: RecordReader
    count: int
    shape: RecordShape
    dtype: str
    scale: float | None = None
    white: float | None = None
    start: int = 0
    content: Callable[[], str] = str
    rows: NDArray[np.int64] | None = None
    locate: Callable[[int], RecordLocation] | None = None
    read_arrays: ArrayReader | None = None
    as_stored: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "white", implied_white(self.scale, self.white))

    @classmethod
    def images(cls, read: RecordReader, count: int, shape: RecordShape, **places: Any) -> LazyField:
        """Return images, files or uint8 arrays [channels, height, width], whose white is 255.

        places: `content`, `locate` and `read_arrays`.
        """
        return cls(read, count, shape, "uint8", 1 / WHITE, WHITE, **places)

    def read_as(self, white: float | None, where: str) -> LazyField:
        """Return the column as training reads its records; see `Field.read_as`."""
        if (self.white is None) == (white is None):
            return self
        if white is None:
            if self.scale is None:
                raise UserError(unlike_training(where))
            return replace(self, scale=1.0, white=None)
        white = 1.0 if are_unit_values(_some_numbers(self), white) else white
        return pixel_column(self, white, where)

    def source(self, index: int) -> RecordLocation | None:
        """Return the place of the record at `index`, counted from 0; None if it is not known."""
        return None if self.locate is None else self.locate(self._known(index))

    def record(self, index: int) -> NDArray[Any] | EncodedImage:
        """Return the record at `index`, counted from 0."""
        record = self.read(self._known(index))
        if self.as_stored and isinstance(record, EncodedImage):
            return replace(record, as_stored=True)
        return record

    def arrays(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        """Return the arrays of the records at `indices`, and which of them were read.

        None if records are read one by one.
        """
        if self.read_arrays is None:
            return None
        known = self.start + indices if self.rows is None else self.rows[indices]
        return self.read_arrays(known, np.zeros(1, np.int64))

    def _known(self, index: int) -> int:
        """Return the number by which `read` identifies the record at `index`."""
        return self.start + index if self.rows is None else int(self.rows[index])

    def part(self, rows: slice | NDArray[np.int64]) -> LazyField:
        """Return the column restricted to `rows`, a slice without step or record numbers.

        The column must be complete, not itself a part.
        """
        if not isinstance(rows, slice):
            return replace(self, count=len(rows), rows=rows)
        start, stop, _ = rows.indices(self.count)
        return replace(self, start=start, count=stop - start)


def pixel_column(column: LazyField, white: float, where: str) -> LazyField:
    """Return a column of numbers as images in which white is `white`.

    Bytes are scaled when their batch is made, other numbers when they are read. A record that is no
    image is an error when it is read. where: name of the column for messages. Raises UserError if
    some of the records say that 1 is white.
    """
    check_white(_some_numbers(column), white, where)
    are_bytes = column.dtype == "uint8"
    images = replace(column, scale=1 / white if are_bytes else None, white=white)
    if are_bytes and white >= WHITE:
        return images
    read_arrays = None if column.read_arrays is None else partial(_read_arrays, column, white)
    return replace(images, read=partial(_read_pixels, column, white), read_arrays=read_arrays)


def _some_numbers(column: LazyField) -> NDArray[Any]:
    """Return the numbers of records from all over a column; none of bytes, and of damaged ones."""
    found: list[NDArray[Any]] = [np.empty(0, column.dtype)]
    if column.dtype != "uint8":
        for index in np.unique(np.linspace(0, column.count - 1, _SOME).astype(np.int64)).tolist():
            with suppress(UserError):
                found.append(np.asarray(column.record(index)).ravel())
    return np.concatenate(found)


def _read_pixels(column: LazyField, white: float, index: int) -> NDArray[Any]:
    """Return a record, which must be an image; `index` is its number in the complete column."""
    where = "" if column.locate is None else str(column.locate(index))
    pixels = pixels_in_range(np.asarray(column.read(index)), white, where)
    return pixels if column.dtype == "uint8" else unit_values(pixels, white)


def _read_arrays(
    column: LazyField, white: float, indices: NDArray[np.int64], position: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return records as `read_arrays` does; those that are no images count as not read."""
    assert column.read_arrays is not None
    arrays, is_read = column.read_arrays(indices, position)
    flat = arrays.reshape(len(arrays), -1)
    is_read = is_read & (flat.min(axis=1) >= 0) & (flat.max(axis=1) <= white)
    return arrays if column.dtype == "uint8" else unit_values(arrays, white), is_read
