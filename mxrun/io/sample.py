"""Records from outside a data set: rows of a network from an image, a .npy file or a table."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import field as dataclass_field
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.near_names import listed
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.io.convert import first_unrepresentable, valid_range
from mxrun.io.dataset.fields import LazyField
from mxrun.io.dataset.pixels import (
    WHITE,
    are_unit_values,
    checked_pixels,
    unit_values,
    values_text,
)
from mxrun.io.decompressed import is_compressed
from mxrun.io.encodings import marked_encoding, refuse_compressed
from mxrun.io.files import read_all_bytes, with_prefix
from mxrun.io.formats.image_list import names_images
from mxrun.io.formats.npy import read_npy
from mxrun.io.images.decode import decoded, has_frames, takes_images
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.images.kinds import SUFFIXES, image_kind
from mxrun.io.images.pillow import image_pixels
from mxrun.io.tables.encoding import TableEncoding, Tally
from mxrun.io.tables.text import PLAIN, TableForm, parse_table
from mxrun.io.transforms.base import Record
from mxrun.io.transforms.chunk import Item, stacked
from mxrun.io.transforms.pipeline import NO_TRANSFORMS, Pipeline
from mxrun.io.transforms.program import Raw, RowProgram
from mxrun.io.transforms.window_stage import Misfit

_NPY = b"\x93NUMPY"
# Records that are transformed together.
_CHUNK = 64


@dataclass(frozen=True)
class Sample:
    """Description of the records that one network input takes, as in its training data.

    spec: one sample, without the batch axis. pipeline: the transforms of evaluation for `field`.
    white: pixel value of white, if training read images; records are then their pixels, otherwise
    numbers. table: format of tables. encoding: of their columns, if training read a table; `tally`
    then receives what was missing or unknown. remarks: receives notes for the user. as_stored:
    whether images are not turned as their EXIF data say.
    """

    spec: TensorSpec
    pipeline: Pipeline = NO_TRANSFORMS
    field: str = "data"
    white: float | None = None
    table: TableForm = PLAIN
    encoding: TableEncoding | None = None
    tally: Tally = dataclass_field(default_factory=Tally, compare=False)
    remarks: list[str] = dataclass_field(default_factory=list, compare=False)
    as_stored: bool = False
    _programs: dict[float | None, RowProgram] = dataclass_field(default_factory=dict, compare=False)

    def for_records(self) -> Sample:
        """Return the same description with a tally and remarks of its own."""
        return replace(self, tally=Tally(), remarks=[])

    @property
    def record_shape(self) -> tuple[int | None, ...]:
        """Shape of a record before its transforms, as far as it is known."""
        return (self.spec.shape[0] if len(self.spec.shape) == 3 else None, None, None)

    def program(self, scale: float | None) -> RowProgram:
        """Return the program that makes rows of records whose values have a scale factor."""
        if scale not in self._programs:
            column = LazyField(_unread, 0, self.record_shape, self.spec.dtype, scale)
            self._programs[scale] = RowProgram(self.pipeline, self.field, column, self.spec, 0)
        return self._programs[scale]


def _unread(number: int) -> Record:
    raise InternalError(f"record {number} is in memory already")


def read_samples(path: Path, sample: Sample) -> Iterator[NDArray[Any]]:
    """Yield the rows of `sample.spec` in a file; see `samples`."""
    return samples(bytes(read_all_bytes(path)), path, sample)


def samples(content: bytes, name: Path | str, sample: Sample) -> Iterator[NDArray[Any]]:
    """Yield the rows of `sample.spec` in the bytes of a file; `name` is its name for error
    messages.

    The format is detected from the first bytes. An image is one record, grey or colour as the input
    requires. A .npy file is one record, or several along a leading axis. A table of numbers is one
    record a row. If training read images, the numbers of arrays and tables are pixels as in its
    data, and all pixels are scaled to 0..1; otherwise all numbers, also an image's bytes, keep
    their values. Raises UserError naming the file if it cannot be read or a record does not fit.
    """
    return _rows(_records(content, name, sample), name, sample)


def array_samples(array: NDArray[Any], name: str, sample: Sample) -> Iterator[NDArray[Any]]:
    """Yield the rows of `sample.spec` in an array, which is read like a .npy file; see `samples`.

    `name` is the array's name for error messages.
    """
    return _rows(_array_records(array, name, sample), name, sample)


def _rows(
    records: Iterable[tuple[Record | EncodedImage, float | None]], name: Path | str, sample: Sample
) -> Iterator[NDArray[Any]]:
    """Yield records as the network reads them: transformed and scaled."""
    remaining, first = iter(records), 0
    while chunk := list(islice(remaining, _CHUNK)):
        yield from _chunk_rows(
            [_item(record) for record, _ in chunk], chunk[0][1], first, name, sample
        )
        first += len(chunk)


def _item(record: Record | EncodedImage) -> Item:
    return record if isinstance(record, EncodedImage) else np.asarray(record)


def _chunk_rows(
    records: list[Item],
    scale: float | None,
    first: int,
    name: Path | str,
    sample: Sample,
) -> Iterator[NDArray[Any]]:
    """Yield the rows of records of one scale; `first` is the number of the first in its file."""
    spec, count = sample.spec, len(records)
    if not sample.pipeline and scale is None:
        complete = [each for each in records if _is_row(each, spec)]
        if len(complete) == count:
            yield from complete
            return
    numbers, rows = np.arange(count), np.empty((count, *spec.shape), spec.dtype)
    epochs = np.zeros_like(numbers)
    raw = Raw(stacked(records, sample.record_shape))
    failed = dict(sample.program(scale).write(raw, numbers, epochs, rows))
    for at, row in enumerate(rows):
        if at in failed:
            raise _explained(failed[at], name, first + at, sample)
        yield row


def _is_row(record: Item, spec: TensorSpec) -> TypeGuard[NDArray[Any]]:
    """Return whether a record is a row of the network's as it is."""
    if not isinstance(record, np.ndarray):
        return False
    return record.shape == spec.shape and record.dtype == numpy_dtype(spec.dtype)


def _explained(error: UserError, name: Path | str, number: int, sample: Sample) -> UserError:
    """Return the error of a record with its place, and with advice if its shape is wrong."""
    where = f"{name}: record {number}"
    if not isinstance(error, Misfit):
        names_file = error.diagnostics[0].problem.startswith(f"{name}: ")
        return error if names_file else with_prefix(error, where)
    problem = f"{where} does not fit the network's input {sample.field!r}"
    expected, got = str(list(sample.spec.shape)), str(list(error.got))
    return UserError(Diagnostic(problem, None, expected, got, hint=_advice(error.got, sample.spec)))


def _advice(shape: Shape, spec: TensorSpec) -> str:
    """Return the hint for a record whose shape differs from the network's."""
    if len(shape) == 1:
        return f"a row needs {math.prod(spec.shape)} numbers, as many as a record has"
    if len(shape) != 3 or len(spec.shape) != 3:
        return "give records in the network's shape"
    if shape[0] != spec.shape[0]:
        return f"axes are channels, height and width; the network reads {spec.shape[0]} channel(s)"
    return "resize, center_crop, ... in the config's `transforms` bring records to one size"


def _records(
    content: bytes, name: Path | str, sample: Sample
) -> Iterator[tuple[Record | EncodedImage, float | None]]:
    """Yield the file's records before transforms, each with the scale factor of its values."""
    spec = sample.spec
    if content.startswith(_NPY):
        yield from _array_records(read_npy(io.BytesIO(content), name), name, sample)
    elif image_kind(content) is not None:
        _require_image(spec, name)
        image = EncodedImage(content, str(name), sample.as_stored)
        if not sample.remarks and has_frames(image):
            sample.remarks.append(f"of several pages or frames the first is read: {name}")
        yield from _image_records(image, name, sample)
    else:
        _require_table(content, name, sample.table.encoding)
        if takes_images(spec) and names_images(content):
            hint = f"name the images; to evaluate them by their labels: mxrun evaluate RUN {name}"
            problem, expected = f"{name}: a list of images, not an image", "images or numbers"
            raise UserError(Diagnostic(problem, None, expected, hint=hint))
        table = parse_table(content, name, sample.table, _header_hint(sample.table))
        if table.features is not None and sample.encoding is not None:
            rows, tally = sample.encoding.encode(table.features, str(name))
            sample.tally.add(tally)
        else:
            assert table.values is not None
            rows = _numbers(table.values, name, sample)
        for row in rows:
            fits = row.size == math.prod(spec.shape)
            yield row.reshape(spec.shape) if fits else row, None


def _require_image(spec: TensorSpec, name: Path | str) -> None:
    """Raise UserError if an input takes no images."""
    if len(spec.shape) != 3 or spec.shape[0] not in (1, 3):
        problem = f"{name}: the network's input is not an image"
        raise UserError(Diagnostic(problem, None, str(list(spec.shape)), "an image"))


def _image_records(
    image: Record | EncodedImage, name: Path | str, sample: Sample
) -> Iterator[tuple[Record | EncodedImage, float | None]]:
    """Yield an image as one record: pixels, or numbers if training read numbers."""
    if sample.white is not None:
        yield image, 1 / WHITE
        return
    if not sample.remarks:
        sample.remarks.append(
            f"the run was trained on numbers, not on images: the network reads an image's bytes, "
            f"0..{WHITE:g}, as they are"
        )
    if sample.encoding is None:
        yield image, 1.0
        return
    pixels = decoded(image, sample.spec.shape)
    yield from _array_records(pixels.reshape(1, -1), name, sample)


def _array_records(
    array: NDArray[Any], name: Path | str, sample: Sample
) -> Iterator[tuple[Record | EncodedImage, float | None]]:
    """Yield an array's records before transforms, each with the scale factor of its values.

    An array of objects holds images of Pillow, or a record in each.
    """
    if sample.encoding is not None:
        rows, tally = sample.encoding.encode_array(array, str(name))
        sample.tally.add(tally)
        yield from ((row.reshape(sample.spec.shape), None) for row in rows)
        return
    if array.dtype != object:
        yield from ((record, None) for record in _split(_numbers(array, name, sample), sample))
        return
    for at, item in enumerate(array):
        where = f"{name}: record {at}"
        if isinstance(item, np.ndarray):
            yield from _array_records(item, where, sample)
        else:
            _require_image(sample.spec, where)
            pixels = image_pixels(item, sample.spec.shape[0], where, sample.as_stored)
            yield from _image_records(pixels, where, sample)


def _header_hint(form: TableForm) -> str:
    """Return the hint for a word in the first row of a table that does not name its columns."""
    names = [column for column in form.data or () if isinstance(column, str)]
    if not names:
        return "only numbers are read: remove the row of names"
    return f"the first row must name the columns: {listed(names)}"


def _require_table(content: bytes, name: Path | str, encoding: str) -> None:
    """Raise UserError for files that are clearly not tables; encoding: the one declared."""
    found = hint = ""
    if not content:
        found = "an empty file"
    elif str(name).lower().endswith(SUFFIXES):
        found = f"a file named {Path(name).suffix} that is not an image"
    elif str(name).lower().endswith(".npz"):
        found, hint = "an archive", "save one of its arrays as .npy"
    elif content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        found, hint = "markup, such as SVG or HTML", "convert it to PNG"
    elif b"\0" in content and not (is_compressed(content) or marked_encoding(content) or encoding):
        refuse_compressed(name, content, "an image, a .npy file or a table of numbers")
        found = "binary data of an unknown format"
    if found:
        expected = "an image, a .npy file or a table of numbers"
        raise UserError(Diagnostic(f"{name}: holds no records", None, expected, found, hint=hint))


def _split(array: NDArray[Any], sample: Sample) -> NDArray[Any]:
    """Return an array as [records, *record]; the axis of records may be missing.

    Grey images may lack the channel axis. Without transforms, records may be flat: one row each.
    """
    spec, rank = sample.spec, len(sample.spec.shape)
    is_flat = array.shape[1:] == (math.prod(spec.shape),) and array.shape != spec.shape[-2:]
    if rank > 1 and is_flat and not sample.pipeline:
        return array.reshape(-1, *spec.shape)
    if rank == 3 and spec.shape[0] == 1 and array.ndim in (2, 3) and array.shape[0] != 1:
        return array.reshape(-1, 1, *array.shape[-2:])
    # A scalar is one record, of a shape that the network may refuse.
    return array[np.newaxis] if array.ndim in (0, rank) else array


def _numbers(array: NDArray[Any], name: Path | str, sample: Sample) -> NDArray[Any]:
    """Return numbers in the input's dtype; pixels, in 0..1, if training read images."""
    dtype = sample.spec.dtype
    at = first_unrepresentable(array, dtype)
    if at is not None:
        problem = f"{name}: number {at} cannot be converted to {dtype}"
        raise UserError(Diagnostic(problem, None, valid_range(dtype), str(array.flat[at])))
    white = sample.white
    if white is not None and are_unit_values(array, white):
        white = 1.0
        if not sample.remarks:
            sample.remarks.append(f"{name}: {values_text({sample.field: white}, [sample.field])}")
    if white is not None:
        return unit_values(checked_pixels(array, white, str(name)), white)
    return array.astype(dtype, copy=False)
