"""Columns of a data set from arrays in files: in memory, or read while training runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters, Positive
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs, LazyField
from mxrun.io.formats.arrays import are_words, array_field, word_field
from mxrun.io.formats.images_option import IMAGES, check_images
from mxrun.io.formats.stored_arrays import StoredArray, array_column
from mxrun.io.loading.batch import is_label
from mxrun.io.paths import PathText

# Functions that read named arrays of one file into memory, and that find one for random access.
ReadArrays = Callable[[Path, tuple[str, ...]], Mapping[str, NDArray[Any]]]
FindArray = Callable[[Path, str], StoredArray]


class ArrayOptions(Parameters):
    """Names of arrays, which of them are images, and whether they are read at once."""

    arrays: dict[PathText, PathText] = Option(
        default={},
        description="Name of the array for each input of the network, without .npy; default: the "
        "input's name.",
        examples=[{"data": "x_train", "label": "y_train"}],
    )
    images: dict[PathText, Positive] = IMAGES
    in_memory: bool = Option(
        default=True,
        description="Whether arrays are read into memory at once. Otherwise their records are read "
        "while training runs, except for labels; arrays in archives must not be compressed.",
    )


def are_lazy(options: ArrayOptions) -> bool:
    """Return whether records are read while training runs."""
    return not options.in_memory


def array_dataset(
    name: str,
    paths: Sequence[Path],
    inputs: Inputs,
    options: ArrayOptions,
    read: ReadArrays,
    find: FindArray,
) -> Dataset:
    """Return the data set of arrays [records, ...] in files of the same arrays.

    Raises UserError for arrays of different lengths, empty ones, arrays that cannot be read as the
    options say, and numbers that the inputs cannot represent.
    """
    check_images(options.images, inputs)
    names = {each: options.arrays.get(each, each) for each in inputs}
    columns: dict[str, LazyField] = {}
    if not options.in_memory:
        columns = {
            each: array_column(
                [find(path, names[each]) for path in paths], spec, options.images.get(each)
            )
            for each, spec in inputs.items()
            if not is_label(each)
        }
    in_memory = tuple(dict.fromkeys(names[each] for each in inputs if each not in columns))
    arrays = _joined(paths, in_memory, read)
    where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and others"
    _check_lengths(arrays, columns, where)
    fields: dict[str, Field] = {}
    classes: tuple[str, ...] = ()
    for each, spec in inputs.items():
        array, shown = arrays.get(names[each]), f"{where}: {names[each]}.npy"
        if array is None or each in columns:
            continue
        if are_words(array) and is_label(each) and spec == TensorSpec((), "int32"):
            fields[each], classes = word_field(array, shown)
        else:
            fields[each] = array_field(array, spec, shown, options.images.get(each))
    return Dataset(name, fields, classes, "all", lazy=columns)


def _joined(
    paths: Sequence[Path], names: tuple[str, ...], read: ReadArrays
) -> dict[str, NDArray[Any]]:
    """Read the arrays into memory, joined along the first axis."""
    if not names:
        return {}
    files = [read(path, names) for path in paths]
    if len(files) == 1:
        return dict(files[0])
    for path, arrays in zip(paths, files, strict=True):
        for name, array in arrays.items():
            first = files[0][name]
            is_alike = array.dtype == first.dtype or (
                are_words(array) and array.dtype.kind == first.dtype.kind
            )
            if array.shape[1:] != first.shape[1:] or not array.ndim or not is_alike:
                problem = f"{path}: {name}.npy: the records are not like those of {paths[0]}"
                expected = f"{first.dtype} {list(first.shape[1:])}"
                got = f"{array.dtype} {list(array.shape[1:])}"
                raise UserError(Diagnostic(problem, None, expected, got))
    return {name: np.concatenate([arrays[name] for arrays in files]) for name in names}


def _check_lengths(
    arrays: Mapping[str, NDArray[Any]], columns: Mapping[str, LazyField], where: str
) -> None:
    """Raise UserError unless all arrays have the same number of records, and at least one."""
    lengths = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    lengths |= {name: column.count for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        problem = f"{where}: the arrays have different numbers of records, or none"
        got = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise UserError(Diagnostic(problem, None, "the same number in each, and at least one", got))
    if empty := [f"{name} {list(array.shape)}" for name, array in arrays.items() if not array.size]:
        problem = f"{where}: the records of an array are empty"
        raise UserError(Diagnostic(problem, None, "no axis of length 0", ", ".join(empty)))
