"""Tables as text files, one record a row: numbers, and a label of numbers or words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option
from pydantic import StringConstraints

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec
from mxrun.io.convert import unfit, wanted
from mxrun.io.dataset import Dataset, Field, Inputs, register
from mxrun.io.files import user_path
from mxrun.io.table import Table, TableForm, read_table

Named = int | Annotated[str, StringConstraints(min_length=1)]


class CsvOptions(Parameters):
    """Where the file is and which columns are what."""

    path: str = Option(min_length=1, description="the file")
    data: tuple[Named, ...] | None = Option(
        default=None,
        min_length=1,
        description="the columns that are data: names of the header or numbers, counted from 0; "
        "default: all but the label",
    )
    label: Named | None = Option(
        default=-1, description="the column that is the label; default: the last; null: none"
    )
    header: bool = Option(default=False, description="whether the first row names the columns")
    delimiter: str | None = Option(
        default=None,
        min_length=1,
        max_length=1,
        description="what divides the columns; default: what the first row holds of a tab, a "
        "semicolon or a comma",
    )

    @property
    def form(self) -> TableForm:
        """How the file is written, and which of its columns are read."""
        header: Literal["yes", "no"] = "yes" if self.header else "no"
        return TableForm(self.delimiter or "", header, self.data, self.label)


def follow(
    options: CsvOptions, own: frozenset[str], columns: Sequence[str], label: str
) -> CsvOptions:
    """The options that take columns by the names that they have in training's table, which stand in
    another order here, or among others. What the section says itself holds.
    """
    if not options.header or "data" in own:
        return options
    found: dict[str, object] = {"data": tuple(columns)}
    if label and options.label is not None and "label" not in own:
        found["label"] = label
    return options.model_copy(update=found)


@register("csv", CsvOptions, ("all",), follow=follow)
def read(options: CsvOptions, split: str, inputs: Inputs) -> Dataset:
    """Rows of numbers; data float32 in the network's shape, label int32 or float32 as it wants.

    Labels that are words are classes, numbered by their sorted names.
    """
    path = user_path(options.path)
    wants_classes = "label" in inputs and inputs["label"] == TensorSpec((), "int32")
    table = read_table(path, replace(options.form, words=wants_classes))
    data = _converted(table.values, table, table.columns, "float32", path)
    shape = inputs["data"].shape if "data" in inputs else (len(table.columns),)
    if math.prod(shape) == len(table.columns):
        data = data.reshape(-1, *shape)
    fields = {"data": Field(data)}
    if table.labels is not None and table.label is not None:
        dtype = inputs["label"].dtype if "label" in inputs else "float32"
        column = table.labels[:, np.newaxis]
        labels = _converted(column, table, (table.label,), dtype, path)[:, 0]
        fields["label"] = Field(labels)
    names, label = table.names, table.label_name
    return Dataset("csv", fields, table.classes, split, columns=names, label_column=label)


def _converted(
    values: NDArray[np.float64], table: Table, columns: Sequence[int], dtype: str, path: Path
) -> NDArray[Any]:
    """The columns as `dtype` [rows, columns]; raises UserError for a number it cannot hold."""
    at = unfit(values, dtype)
    if at is not None:
        row, column = divmod(at, len(columns))
        where = f"{path}:{table.lines[row]}:{columns[column] + 1}"
        problem = f"{where}: the number cannot be taken as {dtype}"
        raise UserError(Diagnostic(problem, None, wanted(dtype), f"{values[row, column]:g}"))
    return values.astype(dtype)
