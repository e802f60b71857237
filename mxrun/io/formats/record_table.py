"""Image records of RecordIO files: their places and labels, and random access to their images."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.io.dataset.fields import ArrayReader
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.files import fail
from mxrun.io.formats.byte_file import MAX_OPEN_FILES, ByteFile
from mxrun.io.formats.content_digest import content_digest
from mxrun.io.formats.extents import FileExtents
from mxrun.io.formats.image_record import (
    HEADER_BYTES,
    labels_end,
    read_labels,
)
from mxrun.io.formats.image_table import ImageTable
from mxrun.io.formats.labels import LabelNumbers
from mxrun.io.formats.record_arrays import RecordArrays
from mxrun.io.formats.recordio import RecordHead, read_index, read_record, scan_records
from mxrun.io.formats.stored_images import HEAD_BYTES, ScannedImages, stored_image
from mxrun.io.images.encoded import EncodedImage

# Bytes of each payload that are read for its labels and the header of an array: up to 10 labels.
_HEAD_BYTES = HEADER_BYTES + 40 + HEAD_BYTES


@dataclass(frozen=True, eq=False)
class RecordTable(ImageTable):
    """Image records of RecordIO files, by the extents of the records.

    labels: of all records. notes: remarks on records that are left out.
    """

    labels: LabelNumbers
    notes: tuple[str, ...] = ()

    def image(self, channels: int, record: int) -> EncodedImage | NDArray[Any]:
        """Return the image of a record; thread-safe. Raises UserError if it cannot be read."""
        file = self.files[self.file_numbers[record]]
        where = str(self.locate(record))
        payload = read_record(file, int(self.starts[record]), int(self.sizes[record]))
        if len(payload) < HEADER_BYTES:
            start = int(self.starts[record])
            fail(file.path, start, "the record changed after the file was opened")
        return stored_image(payload[labels_end(payload) :], channels, where)

    def reader_of(self, extents: FileExtents, header: bytes, shape: Shape) -> ArrayReader:
        """Return the reader of records' arrays."""
        return RecordArrays(extents, header, shape).read

    def digest(self) -> str:
        """Return the SHA-256 of the files' content and of the records that count."""
        content = content_digest([(b"", file.path) for file in self.files])
        rows = np.stack([self.file_numbers, self.starts]).astype("<i8").tobytes()
        return hashlib.sha256(content.encode() + rows).hexdigest()


@dataclass
class _ScannedRecords(ScannedImages):
    """Records of a table while its files are scanned.

    are_ranges: 1 for records that hold a range of numbers and no image.
    """

    counts: array[int] = field(default_factory=lambda: array("q"))
    labels: array[float] = field(default_factory=lambda: array("d"))
    are_ranges: array[int] = field(default_factory=lambda: array("b"))


def open_records(paths: Sequence[Path], indexes: Sequence[Path]) -> RecordTable:
    """Read the headers and labels of all records of RecordIO files.

    indexes: empty, or an index file for each file: it selects records, in its order. Without it
    all records count, and an index file beside a file, with its name and the suffix .idx, must have
    exactly its records, so that a cut file is not taken for a shorter one. If the first record of a
    file is a range of the numbers of others, as insightface writes it, all such records are left
    out. Raises UserError naming the byte at which a file is damaged, and for files without records.
    """
    if indexes and len(indexes) != len(paths):
        problem = "each RecordIO file needs its index file"
        got = f"{len(indexes)} index files"
        raise UserError(Diagnostic(problem, None, f"{len(paths)} index files", got))
    columns = _ScannedRecords()
    parts: list[NDArray[np.int64]] = []
    notes: list[str] = []
    files = tuple(ByteFile(path, stays_open=len(paths) <= MAX_OPEN_FILES) for path in paths)
    for file in files:
        first = len(columns.starts)
        for number, head in enumerate(scan_records(file, _HEAD_BYTES)):
            _append(columns, file, number, head)
        starts = np.array(columns.starts[first:], np.int64)
        if not len(starts):
            raise UserError(Diagnostic(f"{file.path}: holds no records", None, "image records"))
        rows = _selected(file.path, starts, indexes[len(parts)] if indexes else None)
        is_range = np.array(columns.are_ranges[first:], np.bool_)
        images = rows[~is_range[rows]] if is_range[0] else rows
        if len(images) < len(rows):
            notes.append(_ranges_note(file.path, len(rows) - len(images)))
        if not len(images):
            raise UserError(Diagnostic(f"{file.path}: holds no images", None, "image records"))
        parts.append(first + images)
    return replace(_table(files, columns, parts), notes=tuple(notes))


def _ranges_note(path: Path, count: int) -> str:
    what = "1 record holds" if count == 1 else f"{count:,} records hold"
    return f"{path}: {what} a range of record numbers and no image, as of insightface: left out"


def _append(columns: _ScannedRecords, file: ByteFile, number: int, head: RecordHead) -> None:
    """Append a record to the columns."""
    where = RecordLocation(str(file.path), number, head.start)
    start: bytes | memoryview = head.head
    if len(start) < min(head.payload, HEADER_BYTES) or (
        len(start) >= HEADER_BYTES and labels_end(start) + HEAD_BYTES > len(start) < head.payload
    ):
        start = read_record(file, head.start, head.size)
    labels = read_labels(start, where)
    end = labels_end(start)
    columns.add(number, head.start, head.size)
    columns.counts.append(len(labels))
    columns.labels.extend(labels)
    columns.are_ranges.append(head.payload == end and len(labels) == 2)
    columns.add_content(start[end : end + HEAD_BYTES], head.payload - end, where)


def _selected(path: Path, starts: NDArray[np.int64], index: Path | None) -> NDArray[np.int64]:
    """Return the records that an index file selects; without one, all."""
    beside = path.with_suffix(".idx")
    if index is None and not beside.is_file():
        return np.arange(len(starts))
    source = index or beside
    offsets = np.array(list(read_index(source).values()), np.int64)
    places = np.minimum(np.searchsorted(starts, offsets), len(starts) - 1)
    hint = "write it again" if index else "write it again, or remove it"
    wrong = np.flatnonzero(starts[places] != offsets)
    if len(wrong):
        line = int(wrong[0])
        problem = f"{source}:{line + 1}: no record of {path} begins there"
        raise UserError(
            Diagnostic(problem, None, "the index of this file", str(offsets[line]), hint=hint)
        )
    if not len(offsets):
        raise UserError(Diagnostic(f"{source}: the index is empty", None, "a line for each record"))
    if index is not None:
        return places
    if len(np.unique(places)) != len(starts) or len(offsets) != len(starts):
        problem = f"{path}: has other records than its index file {source}"
        expected = f"{len(offsets)} records"
        raise UserError(Diagnostic(problem, None, expected, f"{len(starts)} records", hint=hint))
    return np.arange(len(starts))


def _table(
    files: tuple[ByteFile, ...], columns: _ScannedRecords, parts: Sequence[NDArray[np.int64]]
) -> RecordTable:
    """Return the table of the selected records; parts: their rows in the columns, by file."""
    rows = np.concatenate(parts)
    counts = np.array(columns.counts, np.int64)
    starts = np.cumsum(counts) - counts
    values = np.array(columns.labels, np.float64)
    if len(rows) != len(counts) or (np.diff(rows) != 1).any():
        chosen = [np.arange(starts[row], starts[row] + counts[row]) for row in rows.tolist()]
        values = values[np.concatenate(chosen)]
    return RecordTable(
        files,
        np.repeat(np.arange(len(files)), [len(part) for part in parts]),
        **columns.columns(rows),
        labels=LabelNumbers(values, counts[rows]),
    )
