"""Records of tar files: where each image is, its label, and random access to the image."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed, nearest
from mxrun.base.tensor import Shape
from mxrun.io.dataset.fields import ArrayReader
from mxrun.io.encodings import decoded
from mxrun.io.files import fail
from mxrun.io.formats.byte_file import MAX_OPEN_FILES, ByteFile
from mxrun.io.formats.content_digest import content_digest
from mxrun.io.formats.extents import FileExtents, PlainArrays
from mxrun.io.formats.image_table import ImageTable
from mxrun.io.formats.labels import LabelValue
from mxrun.io.formats.stored_images import HEAD_BYTES, ScannedImages, stored_image
from mxrun.io.formats.tar_shards import TarMember, TarRecord, scan_tar_records
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.images.kinds import SUFFIXES

# Extensions of images, and of arrays that need no decoding.
_ARRAY = "npy"
_IMAGES = (*(suffix.removeprefix(".") for suffix in SUFFIXES), _ARRAY)
_JSON = "json"
_HEADER_BYTES = 512
_MAX_LABEL_BYTES = 1 << 20


@dataclass(frozen=True)
class TarLayout:
    """Members of a record that are read.

    image: extension of the image; empty for the first one that is an image's. label: extension of
    the label, and key: the label's key in a JSON member; its dots lead into mappings.
    requires_label: whether every record has a label.
    """

    image: str = ""
    label: str = "cls"
    key: str = "label"
    requires_label: bool = True


@dataclass(frozen=True, eq=False)
class TarTable(ImageTable):
    """Records of tar files, by the extents of their images.

    labels: of all records; empty if the first one has none.
    """

    labels: Sequence[LabelValue]

    def image(self, channels: int, record: int) -> EncodedImage | NDArray[Any]:
        """Return the image of a record; thread-safe. Raises UserError if it cannot be read."""
        file = self.files[self.file_numbers[record]]
        content = file.read(int(self.starts[record]), int(self.sizes[record]))
        return stored_image(memoryview(content), channels, str(self.locate(record)))

    def reader_of(self, extents: FileExtents, header: bytes, shape: Shape) -> ArrayReader:
        """Return the reader of members that are arrays."""
        return PlainArrays(extents, header, shape, np.dtype(np.uint8)).read

    def digest(self) -> str:
        """Return the SHA-256 of the files' content."""
        return content_digest([(b"", file.path) for file in self.files])


@dataclass
class _ScannedTarRecords(ScannedImages):
    """Records of a table while its files are scanned."""

    files: array[int] = field(default_factory=lambda: array("q"))
    labels: list[LabelValue] = field(default_factory=list)


def open_tar_records(paths: Sequence[Path], layout: TarLayout) -> TarTable:
    """Read the headers and labels of all records of tar files.

    Raises UserError naming the byte at which a file is damaged, a record without its image or its
    label, and files without records.
    """
    columns = _ScannedTarRecords()
    files = tuple(ByteFile(path, stays_open=len(paths) <= MAX_OPEN_FILES) for path in paths)
    for at, file in enumerate(files):
        first = len(columns.files)
        for number, record in enumerate(scan_tar_records(file)):
            columns.files.append(at)
            _append(columns, file, number, record, layout)
        if len(columns.files) == first:
            problem = f"{file.path}: holds no records"
            raise UserError(Diagnostic(problem, None, "members such as 000001.jpg and 000001.cls"))
    return TarTable(
        files,
        np.array(columns.files, np.int64),
        **columns.columns(slice(None)),
        labels=columns.labels,
    )


def _append(
    columns: _ScannedTarRecords, file: ByteFile, number: int, record: TarRecord, layout: TarLayout
) -> None:
    """Append a record to the columns."""
    image = _image(file, record, layout.image)
    columns.add(number, image.start, image.size)
    if image.name.lower().endswith(_ARRAY):
        head = file.read(image.start, min(HEAD_BYTES, image.size))
        columns.add_content(head, image.size, f"{file.path}: {image.name}")
    else:
        columns.shapes.add(None)
    label = record.members.get(layout.label)
    is_first = len(columns.starts) == 1
    if label is not None and (is_first or columns.labels):
        columns.labels.append(_label(file, label, layout))
    elif layout.requires_label or columns.labels or label is not None:
        problem = f"the record {record.name} has no label"
        if label is not None:
            problem = f"the record {record.name} has a label, but the first record has none"
        hint = "`label` names the extension of the labels"
        got = f"extensions {listed(list(record.members))}"
        expected = f"a member {record.name}.{layout.label}"
        fail(file.path, image.start - _HEADER_BYTES, problem, expected, got, hint=hint)


def _image(file: ByteFile, record: TarRecord, extension: str) -> TarMember:
    """Return the member that is the record's image."""
    extensions = (extension,) if extension else _IMAGES
    found = next((member for each, member in record.members.items() if each in extensions), None)
    if found is None:
        first = next(iter(record.members.values()))
        expected = f"a member {record.name}.{extension or 'jpg'}"
        got = f"extensions {listed(list(record.members))}"
        hint = "`image` names the extension of the images"
        problem = f"the record {record.name} has no image"
        fail(file.path, first.start - _HEADER_BYTES, problem, expected, got, hint=hint)
    return found


def _label(file: ByteFile, member: TarMember, layout: TarLayout) -> LabelValue:
    """Read a label: a text, or numbers."""
    where = f"{file.path}: {member.name}"
    if member.size > _MAX_LABEL_BYTES:
        limit = f"at most {_MAX_LABEL_BYTES:,} bytes"
        raise UserError(Diagnostic(f"{where}: too large for a label", None, limit))
    text = decoded(file.read(member.start, member.size), where).strip()
    if member.name.lower().endswith(f".{_JSON}"):
        return _json_label(text, layout.key, where)
    if not text:
        raise UserError(Diagnostic(f"{where}: the label is empty", None, "a class, or numbers"))
    return text


def _json_label(text: str, key: str, where: str) -> LabelValue:
    """Return the value at a key of a JSON text: a text, a number or a list of numbers."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON: {error}") from error
    for step in key.split("."):
        if not isinstance(value, Mapping) or step not in value:
            known = list(map(str, value)) if isinstance(value, Mapping) else []
            hint = nearest(step, known)
            problem = f"{where}: has no key {key!r}"
            expected = f"one of {listed(known)}" if known else "a mapping"
            raise UserError(Diagnostic(problem, None, expected, hint=hint))
        value = value[step]
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, int):
        # As a text it is a class or a number.
        return str(int(value))
    numbers = value if isinstance(value, list) else [value]
    try:
        if numbers and all(isinstance(number, (int, float)) for number in numbers):
            return tuple(map(float, numbers))
    except OverflowError:
        pass
    problem = f"{where}: the label {key!r} is neither a text nor numbers"
    raise UserError(Diagnostic(problem, None, "a text, a number or a list", repr(value)[:80]))
