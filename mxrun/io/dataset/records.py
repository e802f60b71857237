"""Single records of a data set as its files hold them, and where these are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import UserError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.images.decode import decoded
from mxrun.io.images.encoded import EncodedImage


def stored_record(dataset: Dataset, name: str, index: int) -> NDArray[Any]:
    """Return a field's record as its files hold it, before scale and transforms; images decoded.

    Raises UserError for a record that cannot be read.
    """
    return decoded_record(dataset, name, undecoded_record(dataset, name, index))


def undecoded_record(dataset: Dataset, name: str, index: int) -> NDArray[Any] | EncodedImage:
    """Return a field's record, an image as its file; raises UserError if it cannot be read."""
    column = dataset.lazy.get(name)
    if column is None:
        return np.asarray(dataset.fields[name].taken(index))
    return column.record(index)


def decoded_record(
    dataset: Dataset, name: str, record: NDArray[Any] | EncodedImage
) -> NDArray[Any]:
    """Return a field's undecoded record as an array; raises UserError for a damaged image."""
    return decoded(record, dataset.lazy[name].shape if name in dataset.lazy else ())


def scale_of(dataset: Dataset, name: str) -> float | None:
    """Return the factor from the stored numbers of a field to its values; None without one."""
    column = dataset.lazy.get(name) or dataset.fields[name]
    return column.scale


def column_names(dataset: Dataset) -> tuple[str, ...]:
    """Return the names of the numbers of a table's row; empty if they have none."""
    return dataset.columns if dataset.encoding is None else dataset.encoding.inputs


def location_of_record(dataset: Dataset, index: int) -> RecordLocation | None:
    """Return the place of a record in its files; None if it is not known."""
    for column in dataset.lazy.values():
        if (location := column.source(index)) is not None:
            return location
    return None


def number_of_record(dataset: Dataset, index: int) -> int:
    """Return a record's number in the complete split."""
    return index if dataset.numbers is None else int(dataset.numbers[index])


def problem_of(error: UserError) -> str:
    """Return what is wrong, on one line."""
    first = error.diagnostics[0]
    detail = (
        f" (expected {first.expected}, got {first.got})" if first.expected and first.got else ""
    )
    return f"{first.problem}{detail}"
