"""Columns of a user's own data set, whose function of reading may raise and return anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from mxrun.base.errors import MxrunError, UserError
from mxrun.io.dataset.fields import LazyField
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.loading.python_transforms import described, plain_array

_OWN_PACKAGE = "mxrun."


def guarded(column: LazyField) -> LazyField:
    """Return a column whose `read` raises UserError for a bad record, as mxrun's own do."""
    if is_ours(column.read):
        return column
    return replace(column, read=partial(_read, column.read))


def is_ours(read: Callable[..., Any]) -> bool:
    """Return whether a function of reading is mxrun's own."""
    while isinstance(read, partial):
        read = read.func
    return (getattr(read, "__module__", None) or "").startswith(_OWN_PACKAGE)


def _read(read: Callable[[int], Any], number: int) -> NDArray[Any] | EncodedImage:
    try:
        record = read(number)
    except (MxrunError, MemoryError):
        raise
    except Exception as error:
        raise UserError(f"reading has raised {described(error)}") from error
    if isinstance(record, EncodedImage):
        return record
    return plain_array(record, "reading")
