"""Arguments of a model's methods: records, parts of the data, and numbers."""

from __future__ import annotations

import math
import numbers
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.limits import MAX_BATCH
from mxrun.base.near_names import listed, nearest
from mxrun.frontend import ModelDefinition
from mxrun.inference.data_part import EVAL, TRAIN, DataPart
from mxrun.inference.outputs import label_inputs
from mxrun.io.images.pillow import is_pillow_image
from mxrun.io.tables.encoding import TableEncoding
from mxrun.options.shared import MAX, BatchSize

Records: TypeAlias = (
    npt.ArrayLike | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Any]
)


Layout: TypeAlias = Literal["CHW", "HWC"]
"""Order of the axes of an image in an array: channels first, or last."""


def data_part(built: ModelDefinition, data: Any, settings: Mapping[str, Any]) -> DataPart:
    """Return the records that the arguments of `evaluate` name."""
    if data is None:
        return DataPart(settings=settings)
    if isinstance(data, (str, os.PathLike)):
        named = os.fspath(data)
        is_split = isinstance(data, str) and (named in (TRAIN, EVAL) or not os.path.exists(named))
        if is_split:
            return DataPart(split=named, settings=settings)
        return DataPart(path=named, settings=settings)
    if settings:
        given = ", ".join(settings)
        raise UserError(Diagnostic("arrays take no settings of a data section", got=given))
    if isinstance(data, tuple):
        data = _pair(built, data)
    if not isinstance(data, Mapping):
        expected = "a path, a split, (data, labels), or arrays by input"
        got = type(data).__name__
        raise UserError(Diagnostic("evaluate cannot read this", None, expected, got))
    return DataPart(arrays=_named(data))


def _pair(built: ModelDefinition, pair: tuple[Any, ...]) -> dict[str, Any]:
    """Return (data, labels) by the names of the network's inputs."""
    labels = [name for name in built.model.records if name in label_inputs(built)]
    inputs = [name for name in built.model.records if name not in labels]
    if len(pair) != 2 or len(inputs) != 1 or len(labels) != 1:
        raise UserError(
            Diagnostic(
                "(data, labels) is for networks with one input and one label",
                None,
                f"arrays by input: {', '.join((*inputs, *labels))}",
                f"{len(pair)} arrays",
            )
        )
    return {inputs[0]: pair[0], labels[0]: pair[1]}


def records(
    data: Records, encoding: TableEncoding | None = None, layout: Layout = "CHW"
) -> tuple[dict[str, npt.NDArray[Any]] | None, tuple[str, ...]]:
    """Return the arrays by input, or else the paths, that the argument of `predict` names.

    encoding: that of the model's table, if it was trained on one: arrays may then hold words.
    layout: of arrays that are images. Images of Pillow, and arrays of several sizes, come as
    an array of objects.
    """
    if layout not in ("CHW", "HWC"):
        raise UserError(Diagnostic("unknown layout", None, "CHW or HWC", repr(layout)))
    data = table_records(data, encoding)
    if isinstance(data, (str, os.PathLike)):
        return None, (os.fspath(data),)
    if isinstance(data, (list, tuple)) and data:
        paths = [os.fspath(each) for each in data if isinstance(each, (str, os.PathLike))]
        if len(paths) == len(data):
            return None, tuple(paths)
    named = data if isinstance(data, Mapping) else {"": data}
    arrays = _named(named)
    for name, array in arrays.items():
        if encoding is None or name not in ("", "data"):
            _require_numbers(array, f"array {name!r}" if name else "this")
        if layout == "HWC":
            arrays[name] = _channels_first(array)
    return arrays, ()


def table_records(data: Any, encoding: TableEncoding | None) -> Any:
    """Return the columns of a table, by name, as an array of its rows; other records as they are.

    encoding: that of the model's table, if it was trained on one. A column by name is an entry of a
    dictionary, or a column of a data frame.
    """
    names = () if encoding is None else encoding.source_columns
    if encoding is None or isinstance(data, (str, os.PathLike, np.ndarray)):
        return data
    found = [name for name in names if name in data] if hasattr(data, "keys") else []
    if found and all(_is_cell(data[name]) for name in found):
        data = [data]
    if isinstance(data, (list, tuple)) and data and all(isinstance(row, Mapping) for row in data):
        return {"data": _rows_of(data, names)}
    if found:
        _check_columns(data, found, names)
    if not found:
        values = np.asarray(data, dtype=object) if isinstance(data, (list, tuple)) else data
        is_table = isinstance(values, np.ndarray) and values.ndim == 2
        return {"data": values} if is_table else data
    columns = [np.asarray(data[name], dtype=object) for name in names]
    return {"data": np.stack(columns, axis=1)}


def _is_cell(value: Any) -> bool:
    return value is None or np.ndim(value) == 0


def _check_columns(data: Any, found: Sequence[str | int], names: Sequence[str | int]) -> None:
    """Raise UserError for columns by name that do not make a table: too few, or of other lengths.

    found: those of the `names` that the data have.
    """
    lacking = [str(name) for name in names if name not in found]
    if lacking:
        others = [str(key) for key in data if key not in names]
        hint = next(filter(None, (nearest(key, lacking) for key in others)), "")
        hint = hint or "None in each row stands for a column whose values are missing"
        expected = f"the columns {listed([*map(str, names)])}"
        problem = f"the columns lack {listed(lacking)}"
        raise UserError(Diagnostic(problem, None, expected, listed([*map(str, found)]), hint=hint))
    lengths = ["one value" if _is_cell(data[name]) else str(len(data[name])) for name in names]
    if len(set(lengths)) != 1:
        got = ", ".join(f"{name}: {each}" for name, each in zip(names, lengths, strict=True))
        expected = "columns of equal length"
        raise UserError(Diagnostic("the columns do not fit together", None, expected, got))


def _rows_of(
    rows: Sequence[Mapping[Any, Any]], names: Sequence[str | int]
) -> npt.NDArray[np.object_]:
    """Return rows by column as an array; what a row lacks is missing.

    Raises UserError for a key that is no column but nearly one that its row lacks, and for a row
    without any column.
    """
    for number, row in enumerate(rows):
        others = [str(key) for key in row if key not in names]
        lacking = [str(name) for name in names if name not in row]
        hint = next(filter(None, (nearest(key, lacking) for key in others)), "")
        if hint or len(lacking) == len(names):
            expected = f"the columns {listed([*map(str, names)])}"
            problem = f"row {number} lacks {listed(lacking)}"
            raise UserError(Diagnostic(problem, None, expected, listed(others), hint=hint))
    array = np.empty((len(rows), len(names)), object)
    array[:] = [[row.get(name) for name in names] for row in rows]
    return array


def _named(arrays: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Return arrays by input. Raises UserError for keys that are no names, and for ragged rows."""
    for name in arrays:
        if not isinstance(name, str):
            raise UserError(Diagnostic("an input's name is text", None, "text", repr(name)))
    return {
        name: _array(array, f"array {name!r}" if name else "the records")
        for name, array in arrays.items()
    }


def _array(values: Any, what: str) -> npt.NDArray[Any]:
    """Return values as an array; images of Pillow, and arrays of several shapes, as one of objects.

    Raises UserError if the rows of anything else differ in shape.
    """
    items = list(values) if isinstance(values, (list, tuple)) else [values]
    are_images = bool(items) and all(map(is_pillow_image, items))
    are_arrays = all(isinstance(each, np.ndarray) and each.dtype.kind in "fiub" for each in items)
    if are_images or (are_arrays and len({each.shape for each in items}) > 1):
        objects = np.empty(len(items), object)
        objects[:] = items
        return objects
    try:
        return np.asarray(values)
    except ValueError as error:
        problem = f"{what} cannot be read as an array"
        raise UserError(Diagnostic(problem, None, "rows of equal shapes", str(error))) from error


def _channels_first(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return arrays [..., height, width, channels] as [..., channels, height, width]."""
    if array.dtype == object and all(isinstance(each, np.ndarray) for each in array.flat):
        moved = np.empty_like(array)
        moved[:] = [*map(_channels_first, array)]
        return moved
    return np.moveaxis(array, -1, -3) if array.ndim >= 3 else array


def _require_numbers(array: npt.NDArray[Any], what: str) -> None:
    are_objects = array.dtype == object and array.ndim == 1 and array.size
    if are_objects and (is_pillow_image(array[0]) or isinstance(array[0], np.ndarray)):
        return
    if array.dtype.kind not in "fiub":
        expected = "numbers, images of Pillow, a path, a list of paths, or arrays by input"
        raise UserError(Diagnostic(f"predict cannot read {what}", None, expected, str(array.dtype)))


def batch_size(batch: BatchSize | None) -> BatchSize | None:
    """Return a batch size. Raises UserError if it is not a number of records or `max`."""
    return batch if batch is None or batch == MAX else count("batch", batch, minimum=1)


def count(name: str, value: Any, minimum: int, maximum: int = MAX_BATCH) -> int:
    """Return the argument `name` as a number. Raises UserError if it is none, or out of range."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not minimum <= number <= maximum:
        expected = f"an integer from {minimum} to {maximum}"
        raise UserError(Diagnostic(f"{name} cannot be {value!r}", None, expected, repr(value)))
    return number


def real(name: str, value: Any, expected: str, is_valid: Callable[[float], bool]) -> float:
    """Return the argument `name` as a number.

    expected: describes the valid numbers, of which NaN is none. Raises UserError for others, and
    for what is no number.
    """
    number = float(value) if isinstance(value, numbers.Real) else math.nan
    if not is_valid(number):
        raise UserError(Diagnostic(f"{name} cannot be {value!r}", None, expected, repr(value)))
    return number


def texts(given: Any) -> tuple[str, ...]:
    """Return a text or a list of texts as a tuple; raises UserError for anything else.

    A set is refused: its order is another one in each process.
    """
    found = (given,) if isinstance(given, str) else given
    found = tuple(found) if isinstance(found, Sequence) else ()
    if not found or not all(isinstance(each, str) for each in found):
        expected, got = "a text, or a list of one text or more", repr(given)[:60]
        hint = "ids of tokens are written as a text, '3 1 4'" if found else ""
        raise UserError(Diagnostic("there is nothing to continue", None, expected, got, hint=hint))
    return found
