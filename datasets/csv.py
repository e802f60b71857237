"""Tables of numbers as text files, one record a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option
from pydantic import StringConstraints

from mxrun.base.errors import Diagnostic, UserError, nearest
from mxrun.base.params import Parameters
from mxrun.io.convert import unfit, wanted
from mxrun.io.dataset import Dataset, Field, Inputs, register
from mxrun.io.files import user_path
from mxrun.io.table import Table, TableForm, read_table

# A column's name where there is a header, else its number, counted from 0 or, below 0, the end.
Column = int | Annotated[str, StringConstraints(min_length=1)]


class CsvOptions(Parameters):
    """Where the file is and which columns are what."""

    path: str = Option(min_length=1, description="the file")
    data: tuple[Column, ...] | None = Option(
        default=None,
        min_length=1,
        description="the columns that are data: names of the header or numbers, counted from 0; "
        "default: all but the label",
    )
    label: Column | None = Option(
        default=-1, description="the column that is the label; default: the last; null: none"
    )
    header: bool = Option(default=False, description="whether the first row names the columns")
    delimiter: str = Option(
        default=",", min_length=1, max_length=1, description="what divides the columns"
    )

    @property
    def form(self) -> TableForm:
        """How the file is written."""
        return TableForm(self.delimiter, "yes" if self.header else "no")


@register("csv", CsvOptions, ("all",))
def read(options: CsvOptions, split: str, inputs: Inputs) -> Dataset:
    """Rows of numbers; data float32 in the network's shape, label int32 or float32 as it wants."""
    path = user_path(options.path)
    table = read_table(path, options.form)
    label = None if options.label is None else _column(table, options.label, path)
    count = table.values.shape[1]
    columns: Sequence[int] = [at for at in range(count) if at != label]
    if options.data is not None:
        columns = [_column(table, column, path) for column in options.data]
    if not columns:
        raise UserError(Diagnostic(f"{path}: no column is left for the data"))
    data = _converted(table, columns, "float32", path)
    shape = inputs["data"].shape if "data" in inputs else (len(columns),)
    if math.prod(shape) == len(columns):
        data = data.reshape(-1, *shape)
    fields = {"data": Field(data)}
    if label is not None:
        dtype = inputs["label"].dtype if "label" in inputs else "float32"
        labels = _converted(table, [label], dtype, path)[:, 0]
        fields["label"] = Field(labels)
    return Dataset("csv", fields, (), split)


def _column(table: Table, column: int | str, path: Path) -> int:
    """The number of a column, from 0."""
    count: int = table.values.shape[1]
    if isinstance(column, str):
        if column in table.names:
            return table.names.index(column)
        expected = f"one of {', '.join(table.names)}" if table.names else "`header: true`"
        hint = nearest(column, table.names)
        problem = f"{path}: no column is called {column!r}"
        raise UserError(Diagnostic(problem, None, expected, column, hint))
    if not -count <= column < count:
        problem = f"{path}: there is no column {column}"
        raise UserError(Diagnostic(problem, None, f"{-count} to {count - 1}", str(column)))
    return column % count


def _converted(table: Table, columns: Sequence[int], dtype: str, path: Path) -> NDArray[Any]:
    """The columns as `dtype` [rows, columns]; raises UserError for a number it cannot hold."""
    chosen: NDArray[np.float64] = table.values[:, columns]
    at = unfit(chosen, dtype)
    if at is not None:
        row, column = divmod(at, len(columns))
        where = f"{path}:{table.lines[row]}:{columns[column] + 1}"
        problem = f"{where}: the number cannot be taken as {dtype}"
        raise UserError(Diagnostic(problem, None, wanted(dtype), f"{chosen[row, column]:g}"))
    return chosen.astype(dtype)
