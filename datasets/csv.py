"""Tables in text files: one record a row, of numbers, categories and dates, and a label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.convert import first_unrepresentable, valid_range
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.dataset.registry import register
from mxrun.io.formats.labels import LabelForm, label_fields
from mxrun.io.paths import PathText, find_files
from mxrun.io.tables.cells import CellForm
from mxrun.io.tables.encoding import TableEncoding
from mxrun.io.tables.forms import ColumnChoice, Columns, or_auto
from mxrun.io.tables.layout import TableForm
from mxrun.io.tables.options import Named, TableFile
from mxrun.io.tables.text import TextTable, read_table


class TableOptions(TableFile):
    """File, and choice and treatment of its columns."""

    data: tuple[Named, ...] | None = Option(
        default=None,
        min_length=1,
        description="The data columns: names in the header, or numbers counted from 0; default: "
        "all but the label.",
        examples=[[0, 1, 2, 3]],
    )
    label: Named | Annotated[tuple[Named, ...], Option(min_length=1)] | None = Option(
        default=-1,
        description="The label column: its name in the header, or its number, counted from 0, or "
        "from -1, the last; several: columns of numbers, or of 0 and 1, or true and false; null: "
        "there is none.",
        examples=[4, ["red", "round"]],
    )
    separator: PathText | None = Option(
        default=None,
        description="Separator of several classes in one label, whose numbers are then 1 for each "
        "class of the row and 0 for the others; default: a label is one class.",
        examples=["|"],
    )
    classes: tuple[PathText | int, ...] = Option(
        default=(),
        description="Names of the classes in the order of their numbers, which may be numbers "
        "such as -1 and 1; default: words are sorted, whole numbers are the classes' own.",
        examples=[["no", "yes"], [-1, 1]],
    )
    columns: Columns | None = Option(
        default=None,
        description="Treatment of data columns by name, number or pattern: number, category, date, "
        "ignore, auto, or one of these with parameters; columns that are not named, and all with "
        "auto, are treated by what they hold. What this needs, such as categories and means, is "
        "learned from the training records; default: all columns are numbers, read as they are.",
        examples=[{"age": {"number": {"missing": "median"}}, "name": "ignore"}],
        json_schema_extra=or_auto,
    )


class CsvOptions(CellForm, TableOptions):
    """Options of a table, the form of its cells among them."""

    @property
    def form(self) -> TableForm:
        """Format of the file and the columns to read."""
        is_text = self.separator is not None or bool(self.classes)
        return replace(
            self.table_form(self.columns, self.cells),
            data=self.data,
            label=self.label,
            texts=is_text,
            empty_labels=self.separator is not None,
        )


def follow(
    options: CsvOptions,
    own: frozenset[str],
    columns: Sequence[str],
    label: str,
    encoding: TableEncoding | None,
) -> CsvOptions:
    """Return the options that select columns by their names in training's table, and treat them as
    in training.

    Here these columns may be in another order or among others. Keys that the section sets itself,
    `own`, take precedence.
    """
    found: dict[str, object] = {"columns": None}
    sources: tuple[Named, ...] = tuple(columns)
    if encoding is not None:
        sources = encoding.source_columns
        # Columns that are left out may be among those that the section names.
        if "data" in own and options.data and len(options.data) == len(sources):
            sources = options.data
        forms = zip(sources, encoding.forms, strict=True)
        found["columns"] = {str(source): ColumnChoice.of(form) for source, form in forms}
        found["data"] = sources
    elif columns and options.header is not False and "data" not in own:
        found["data"] = sources
    is_named = bool(columns) and options.header is not False and "data" not in own
    if is_named and label and options.label is not None and "label" not in own:
        found["label"] = label
    return options.model_copy(update=found)


@register(
    "csv",
    CsvOptions,
    ("all",),
    follow=follow,
    suffixes=[".csv", ".tsv", ".txt", ".tab", ".dat", ".data"],
    foreign={"csv": "table tsv dataframe"},
)
def read(options: CsvOptions, split: str, inputs: Inputs) -> Dataset:
    """Rows of a table; data float32 in the network's input shape, label int32 or float32 as its
    input.

    Labels that are words are classes, numbered in the order of their sorted names.
    """
    wants_classes = "label" in inputs and inputs["label"] == TensorSpec((), "int32")
    form = replace(options.form, words=wants_classes, dtype="float32")
    table = read_table(find_files(options.path), form)
    fields: dict[str, Field] = {}
    if table.values is not None:
        data = table.values
        shape = inputs["data"].shape if "data" in inputs else (len(table.columns),)
        if math.prod(shape) == len(table.columns):
            data = data.reshape(-1, *shape)
        fields["data"] = Field(data)
    labels, classes = _labels(options, table, inputs)
    return Dataset(
        "csv",
        fields | labels,
        classes,
        split,
        columns=table.names,
        label_column=table.label_names[0] if len(table.label_names) == 1 else "",
        notes=table.notes,
        features=table.features,
    )


def _labels(
    options: CsvOptions, table: TextTable, inputs: Inputs
) -> tuple[dict[str, Field], tuple[str, ...]]:
    """Return the field of the labels, if there are any, and the names of the classes."""
    if table.label_texts:
        return _text_labels(options, table, inputs)
    if table.labels is None:
        return {}, ()
    spec = inputs.get("label", TensorSpec(table.labels.shape[1:]))
    labels = _numbers(table.labels, table, spec.dtype)
    classes = table.classes
    if labels.ndim == 2 and np.isin(labels, (0, 1)).all():
        classes = table.label_names
    if math.prod(spec.shape) == labels[0].size:
        labels = labels.reshape(-1, *spec.shape)
    return {"label": Field(labels)}, classes


def _text_labels(
    options: CsvOptions, table: TextTable, inputs: Inputs
) -> tuple[dict[str, Field], tuple[str, ...]]:
    """Return labels that are names of classes, one or, with a separator, several in each."""
    texts, known = table.label_texts, tuple(map(str, options.classes))
    if options.separator is not None and not known:
        words = {word.strip() for text in set(texts) for word in text.split(options.separator)}
        known = tuple(sorted(words - {""}))

    def locate(row: int) -> RecordLocation:
        return RecordLocation(table.places.where(row, table.label_columns[0]))

    return label_fields(texts, inputs, locate, LabelForm(options.separator, known))


def _numbers(labels: NDArray[np.float64], table: TextTable, dtype: str) -> NDArray[Any]:
    """Convert labels to `dtype`, [rows] or [rows, n].

    Raises UserError for a number it cannot represent.
    """
    at = first_unrepresentable(labels, dtype)
    if at is not None:
        row, column = divmod(at, labels[0].size)
        where = table.places.where(row, table.label_columns[column])
        problem = f"{where}: the number cannot be converted to {dtype}"
        raise UserError(Diagnostic(problem, None, valid_range(dtype), f"{labels.flat[at]:g}"))
    return labels.astype(dtype)
