"""Files of arrays: `save` and `load`, in the format of safetensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mxrun.base.array_file import (
    METADATA,
    UnreadableArrays,
    file_parts,
    parse_arrays,
    parse_metadata,
)
from mxrun.base.context import Context
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import atomic_file
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.creation import from_numpy

# Of a list: its arrays are named by their numbers.
_LIST = {"mxrun": "list"}


def save(fname: str | os.PathLike[str], data: Any) -> None:
    """Write an array, a list of arrays or a dictionary of arrays to a file, atomically.

    Waits for the arrays. Raises UserError for other data and if the file cannot be written.
    """
    if isinstance(data, NDArrayBase):
        data = [data]
    is_list = isinstance(data, (list, tuple))
    arrays = {str(index): array for index, array in enumerate(data)} if is_list else data
    if not isinstance(arrays, Mapping) or not all(
        isinstance(name, str) and name != METADATA and isinstance(array, NDArrayBase)
        for name, array in arrays.items()
    ):
        expected = "an NDArray, a list of them, or a dictionary of them by name"
        raise UserError(Diagnostic("save", expected=expected, got=type(data).__name__))
    values = {name: array.asnumpy() for name, array in arrays.items()}
    with atomic_file(Path(fname)) as file:
        for part in file_parts(values, _LIST if is_list else None):
            file.write(part)


def load(fname: str | os.PathLike[str], ctx: Context | None = None) -> Any:
    """Read a file that `save` or another program wrote: a list if a list was saved, else a
    dictionary of arrays by name.

    Raises UserError for a file that cannot be read.
    """
    path = Path(fname)
    try:
        content = path.read_bytes()
        values = parse_arrays(content)
    except OSError as error:
        raise UserError(Diagnostic(f"cannot load {path}: {error.strerror or error}")) from error
    except UnreadableArrays as error:
        problem = f"cannot load {path}: {error.problem}"
        raise UserError(Diagnostic(problem, None, error.expected, error.got)) from error
    arrays = {name: from_numpy(value, ctx, value.dtype.name) for name, value in values.items()}
    names = [str(index) for index in range(len(arrays))]
    if parse_metadata(content).get("mxrun") == "list" and arrays.keys() == {*names}:
        return [arrays[name] for name in names]
    return arrays
