"""Records from outside any data set: an image, a .npy file or a table, as rows of a network."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.io.convert import unfit, wanted
from mxrun.io.decode import SUFFIXES, decode_image
from mxrun.io.files import prefixed, read_whole
from mxrun.io.npy import read_npy
from mxrun.io.record import Record, Scale
from mxrun.io.table import PLAIN, TableForm, parse_table
from mxrun.io.transform import NO_TRANSFORMS, Draws, Pipeline, values

_NPY = b"\x93NUMPY"
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"BM", b"P5", b"P6", b"RIFF")
_UNIT = 1 / 255


@dataclass(frozen=True)
class Sample:
    """The records that one of a network's inputs takes, as its training data had them.

    spec: one sample, without the batch axis. pipeline: what evaluation does to the records of
    `field`. scale: what bytes are; None where they are numbers like others. table: how tables are
    written.
    """

    spec: TensorSpec
    pipeline: Pipeline = NO_TRANSFORMS
    field: str = "data"
    scale: Scale | None = None
    table: TableForm = PLAIN


def image_scale(scale: Scale | None) -> float:
    """The factor of an image's bytes for an input whose training data had this scale."""
    return _UNIT if scale is None else scale.images


def read_samples(path: Path, sample: Sample) -> Iterator[NDArray[Any]]:
    """The rows of `sample.spec` that a file holds; see `samples`."""
    return samples(bytes(read_whole(path)), path, sample)


def samples(content: bytes, name: Path | str, sample: Sample) -> Iterator[NDArray[Any]]:
    """The rows of `sample.spec` that the bytes of a file hold; `name` is the file's in errors.

    The first bytes say what it is. An image is one record, grey or colour as the input has it; a
    .npy file is one, or several along an axis in front; a table of numbers is one a row. Bytes are
    scaled as the training data's were, those of images to 0..1 where that was none of bytes.
    Raises UserError for what cannot be read and for records that do not fit, naming the file.
    """
    spec, field = sample.spec, sample.field
    for number, (record, scale) in enumerate(_records(content, name, sample)):
        try:
            made = sample.pipeline.apply(field, record, scale, Draws(0, 0, number))
        except UserError as error:
            raise prefixed(error, f"{name}: record {number}") from error
        if made.shape != spec.shape:
            problem = f"{name}: record {number} does not fit the network's input {field!r}"
            expected, got = str(list(spec.shape)), str(list(made.shape))
            raise UserError(Diagnostic(problem, None, expected, got, _advice(made.shape, spec)))
        yield made if scale is None else values(made, scale)


def _advice(shape: Shape, spec: TensorSpec) -> str:
    """What to do about a record of another shape than the network's."""
    if len(shape) == 1:
        return f"a row needs {math.prod(spec.shape)} numbers, one for each of a record's"
    if len(shape) != 3 or len(spec.shape) != 3:
        return "give records in the network's shape"
    if shape[0] != spec.shape[0]:
        return f"axes are channels, height and width; the network reads {spec.shape[0]} channel(s)"
    return "resize, center_crop, ... in the config's `transforms` bring records to one size"


def _records(
    content: bytes, name: Path | str, sample: Sample
) -> Iterator[tuple[Record, float | None]]:
    """The records as the file has them, each with the factor of its values."""
    spec = sample.spec
    if content.startswith(_NPY):
        array = read_npy(io.BytesIO(content), name)
        scale = None
        if array.dtype == np.uint8 and sample.scale is not None:
            scale = sample.scale.bytes
        array = _converted(array, name, spec.dtype) if scale is None else array
        yield from ((record, scale) for record in _split(array, sample))
    elif content.startswith(_IMAGES):
        if len(spec.shape) != 3 or spec.shape[0] not in (1, 3):
            problem = f"{name}: the network takes no images"
            raise UserError(Diagnostic(problem, None, str(list(spec.shape)), "an image"))
        yield decode_image(io.BytesIO(content), name, spec.shape[0]), image_scale(sample.scale)
    else:
        _refuse_others(content, name)
        table = parse_table(content, name, sample.table, "only numbers are read: take names away")
        for row in _converted(table.values, name, spec.dtype):
            fits = row.size == math.prod(spec.shape)
            yield row.reshape(spec.shape) if fits else row, None


def _refuse_others(content: bytes, name: Path | str) -> None:
    """Raise UserError for files that are plainly no tables."""
    found = hint = ""
    if not content:
        found = "an empty file"
    elif str(name).lower().endswith(SUFFIXES):
        found = f"no image, and a file called {Path(name).suffix} is one"
    elif content.startswith(b"PK\x03\x04"):
        found, hint = "an archive", "save one of its arrays as .npy"
    elif content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        found, hint = "markup, as SVG and HTML are", "draw it as PNG"
    elif b"\0" in content:
        found = "bytes that are no text"
    if found:
        expected = "an image, a .npy file or a table of numbers"
        raise UserError(Diagnostic(f"{name}: holds no records", None, expected, found, hint))


def _split(array: NDArray[Any], sample: Sample) -> NDArray[Any]:
    """An array as [records, *record]: one record without an axis of records, or several.

    Grey images may lack the axis of channels; what is not transformed may lie flat, a record a row.
    """
    spec, rank = sample.spec, len(sample.spec.shape)
    is_flat = array.shape[1:] == (math.prod(spec.shape),) and array.shape != spec.shape[-2:]
    if rank > 1 and is_flat and not sample.pipeline:
        return array.reshape(-1, *spec.shape)
    if rank == 3 and spec.shape[0] == 1 and array.ndim in (2, 3) and array.shape[0] != 1:
        return array.reshape(-1, 1, *array.shape[-2:])
    # A single number has no axis of records: it is one, which may not be what the network reads.
    return array[np.newaxis] if array.ndim in (0, rank) else array


def _converted(array: NDArray[Any], name: Path | str, dtype: str) -> NDArray[Any]:
    at = unfit(array, dtype)
    if at is not None:
        problem = f"{name}: number {at} cannot be taken as {dtype}"
        raise UserError(Diagnostic(problem, None, wanted(dtype), str(array.flat[at])))
    return array.astype(dtype)
