"""Tables in text files: one record a row, of numbers and a label that is a number or a word."""

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
from mxrun.io.convert import first_unrepresentable, valid_range
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.files import user_path
from mxrun.io.tables.text import TableForm, TextTable, read_table

Named = int | Annotated[str, StringConstraints(min_length=1)]


class CsvOptions(Parameters):
    """Path and format of the file, and choice of its columns."""

    path: str = Option(
        min_length=1,
        description="The file. A relative path starts at the config's folder.",
        examples=["iris.csv"],
    )
    data: tuple[Named, ...] | None = Option(
        default=None,
        min_length=1,
        description="The data columns: names in the header, or numbers counted from 0; default: "
        "all but the label.",
        examples=[[0, 1, 2, 3]],
    )
    label: Named | None = Option(
        default=-1,
        description="The label column: its name in the header, or its number, counted from 0, or "
        "from -1, the last; null: there is none.",
        examples=[4],
    )
    header: bool = Option(default=False, description="Whether the first row names the columns.")
    delimiter: str | None = Option(
        default=None,
        min_length=1,
        max_length=1,
        description="Separator of the columns, one character; default: a tab, a semicolon or a "
        "comma, as found in the first row.",
        examples=[";"],
    )

    @property
    def form(self) -> TableForm:
        """Format of the file and the columns to read."""
        header: Literal["yes", "no"] = "yes" if self.header else "no"
        return TableForm(self.delimiter or "", header, self.data, self.label)


def follow(
    options: CsvOptions, own: frozenset[str], columns: Sequence[str], label: str
) -> CsvOptions:
    """Return the options that select columns by their names in training's table.

    Here these columns may be in another order or among others. Keys that the section sets itself,
    `own`, take precedence.
    """
    if not options.header or "data" in own:
        return options
    found: dict[str, object] = {"data": tuple(columns)}
    if label and options.label is not None and "label" not in own:
        found["label"] = label
    return options.model_copy(update=found)


@register("csv", CsvOptions, ("all",), follow=follow)
def read(options: CsvOptions, split: str, inputs: Inputs) -> Dataset:
    """Rows of numbers; data float32 in the network's input shape, label int32 or float32 as its
    input.

    Labels that are words are classes, numbered in the order of their sorted names.
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
    values: NDArray[np.float64], table: TextTable, columns: Sequence[int], dtype: str, path: Path
) -> NDArray[Any]:
    """Convert to `dtype` [rows, columns]; raises UserError for a number it cannot represent."""
    at = first_unrepresentable(values, dtype)
    if at is not None:
        row, column = divmod(at, len(columns))
        where = f"{path}:{table.lines[row]}:{columns[column] + 1}"
        problem = f"{where}: the number cannot be converted to {dtype}"
        raise UserError(Diagnostic(problem, None, valid_range(dtype), f"{values[row, column]:g}"))
    return values.astype(dtype)
