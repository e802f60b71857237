"""Records from outside any data set: an image, a .npy file or a table, as rows of a network."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.io.convert import unfit, wanted
from mxrun.io.decode import decode_image
from mxrun.io.files import prefixed, read_whole
from mxrun.io.npy import read_npy
from mxrun.io.record import Record
from mxrun.io.table import parse_table
from mxrun.io.transform import Draws, Pipeline, values

_NPY = b"\x93NUMPY"
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"BM", b"P5", b"P6", b"RIFF")
_BYTES = 1 / 255


def read_samples(
    path: Path, spec: TensorSpec, pipeline: Pipeline, field: str = "data"
) -> Iterator[NDArray[Any]]:
    """The rows of `spec` (one sample, without the batch axis) that a file holds; see `samples`."""
    return samples(bytes(read_whole(path)), path, spec, pipeline, field)


def samples(
    content: bytes, name: Path | str, spec: TensorSpec, pipeline: Pipeline, field: str = "data"
) -> Iterator[NDArray[Any]]:
    """The rows of `spec` that the bytes of a file hold; `name` stands for the file in errors.

    The first bytes say what it is. An image is one record, grey or colour as `spec` has it; a .npy
    file is one, or several along an axis in front; a table of numbers divided by commas is one
    a row. Bytes are scaled to 0..1. `pipeline` is what evaluation does to the records of `field`.
    Raises UserError for what cannot be read and for records that do not fit, naming the file.
    """
    for number, (record, scale) in enumerate(_records(content, name, spec)):
        try:
            made = pipeline.apply(field, record, scale, Draws(0, 0, number))
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
    content: bytes, name: Path | str, spec: TensorSpec
) -> Iterator[tuple[Record, float | None]]:
    """The records as the file has them, each with the factor of its values."""
    if content.startswith(_NPY):
        array = read_npy(io.BytesIO(content), name)
        scale = _BYTES if array.dtype == np.uint8 and spec.dtype == "float32" else None
        array = array if scale else _converted(array, name, spec.dtype)
        yield from ((record, scale) for record in _split(array, spec))
    elif content.startswith(_IMAGES):
        if len(spec.shape) != 3 or spec.shape[0] not in (1, 3):
            problem = f"{name}: the network takes no images"
            raise UserError(Diagnostic(problem, None, str(list(spec.shape)), "an image"))
        yield decode_image(io.BytesIO(content), name, spec.shape[0]), _BYTES
    else:
        table = parse_table(content, name, ",", header=False)
        for row in _converted(table.values, name, spec.dtype):
            fits = row.size == math.prod(spec.shape)
            yield row.reshape(spec.shape) if fits else row, None


def _split(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """An array as [records, *record]: one record without an axis of records, or several.

    Grey images may lack the axis of channels.
    """
    rank = len(spec.shape)
    if rank == 3 and spec.shape[0] == 1 and array.ndim in (2, 3) and array.shape[0] != 1:
        return array.reshape(-1, 1, *array.shape[-2:])
    return array[np.newaxis] if array.ndim == rank else array


def _converted(array: NDArray[Any], name: Path | str, dtype: str) -> NDArray[Any]:
    at = unfit(array, dtype)
    if at is not None:
        problem = f"{name}: number {at} cannot be taken as {dtype}"
        raise UserError(Diagnostic(problem, None, wanted(dtype), str(array.flat[at])))
    return array.astype(dtype)
