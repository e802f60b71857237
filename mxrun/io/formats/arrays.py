"""Arrays in memory as columns of a data set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.convert import first_unrepresentable, valid_range
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.dataset.pixels import checked_pixels
from mxrun.io.encodings import decoded
from mxrun.io.formats.labels import word_classes


def array_field(
    array: NDArray[Any], spec: TensorSpec, where: str, white: float | None = None
) -> Field:
    """Return an array [records, ...] as the column of an input that takes records of `spec`.

    Images without a channel axis get one. white: pixel value of white, if the array is declared to
    hold images, whose pixels are divided by it; other numbers keep their values. where: name of the
    array for messages. Raises UserError for a number that the input's dtype cannot represent or
    that is no pixel, and for text.
    """
    if spec.shape == (1, *array.shape[1:]):
        array = array[:, np.newaxis]
    if array.dtype.kind not in "biuf":
        hint = ""
        if are_words(array):
            hint = "words are classes as the label of a classification, one of each record"
        problem = f"{where} holds no numbers"
        raise UserError(Diagnostic(problem, None, spec.dtype, str(array.dtype), hint=hint))
    at = first_unrepresentable(array, spec.dtype)
    if at is not None:
        record = np.unravel_index(at, array.shape)
        problem = f"{where}: record {record[0]} cannot be converted to {spec.dtype}"
        raise UserError(Diagnostic(problem, None, valid_range(spec.dtype), str(array[record])))
    if white is not None:
        return Field.images(checked_pixels(array, white, where), white)
    if array.dtype == np.uint8 and spec.dtype == "float32":
        # A batch converts them, in a quarter of the memory.
        return Field(array, 1.0)
    return Field(array.astype(spec.dtype, copy=False))


def are_words(array: NDArray[Any]) -> bool:
    """Return whether the elements of an array are words, as bytes or characters."""
    return array.dtype.kind in "SU"


def word_field(array: NDArray[Any], where: str) -> tuple[Field, tuple[str, ...]]:
    """Return words [records] as classes: the column of their numbers, int32, and their names.

    Raises UserError naming the first record without a word, or with one that is no text.
    """
    if array.ndim != 1:
        problem = f"{where}: the words do not fit the network's input"
        raise UserError(
            Diagnostic(problem, None, "one word of each record", str(list(array.shape)))
        )
    found: dict[bytes, str] = {}
    words = []
    # As bytes: Python's characters cannot hold what a damaged array may.
    for record, content in enumerate(array.view(f"V{array.itemsize}").tolist()):
        if content not in found:
            found[content] = _word(content, array.dtype.kind, f"{where}: record {record}")
        words.append(found[content])
    return word_classes(words, (), lambda record: RecordLocation(where, record))


def _word(content: bytes, kind: str, where: str) -> str:
    """Return the word in the bytes of an element of a dtype of this kind."""
    if kind == "S":
        text = decoded(content.rstrip(b"\0"), where).strip()
    else:
        try:
            text = content.decode("utf-32-le")
        except UnicodeDecodeError as error:
            raise UserError(Diagnostic(f"{where}: not text", got=error.reason)) from error
        text = text.rstrip("\0").strip()
    if not text:
        raise UserError(Diagnostic(f"{where}: the label is missing", None, "a word"))
    return text
