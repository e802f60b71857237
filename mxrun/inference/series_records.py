"""Histories of series from outside a data set: files, and columns by name."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed, nearest
from mxrun.frontend import ModelDefinition
from mxrun.inference.data_part import DataPart
from mxrun.inference.file_settings import given_settings, with_settings
from mxrun.inference.records import STANDARD_INPUT, standard_input
from mxrun.io.series.dataset import SeriesOptions, read_steps
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.io.series.steps import SeriesSteps
from mxrun.io.tables.forms import ColumnChoice, DateForm


def series_options(built: ModelDefinition) -> SeriesOptions:
    """Return the options of training's data set."""
    options = built.data["train"].options
    assert isinstance(options, SeriesOptions)
    return options


def read_history(built: ModelDefinition, encoding: SeriesEncoding, part: DataPart) -> SeriesSteps:
    """Return the steps in files, which are read as those of training."""
    options = with_settings(series_options(built), given_settings(part.settings))
    if part.files == (STANDARD_INPUT,):
        return read_steps(options, encoding.clock, standard_input())
    return read_steps(options.model_copy(update={"path": part.files}), encoding.clock)


def history_of_columns(
    columns: Any, options: SeriesOptions, encoding: SeriesEncoding
) -> SeriesSteps:
    """Return the steps of columns by name, a dictionary or a data frame, in which None is missing.

    Raises UserError for anything else, and for columns that are not there.
    """
    roles = (options.time, options.series, *options.targets, *options.past, *options.known)
    names = [each for each in dict.fromkeys(roles) if each is not None]
    if not hasattr(columns, "keys"):
        expected = f"a path, or columns by name: {listed([*map(str, names)])}"
        got = type(columns).__name__
        raise UserError(Diagnostic("a series cannot be read from this", None, expected, got))
    missing = [name for name in names if name not in columns]
    if missing:
        expected = f"the columns {listed([*map(str, names)])}"
        hint = nearest(str(missing[0]), [*map(str, columns.keys())])
        problem = f"there is no column {missing[0]!r}"
        raise UserError(Diagnostic(problem, None, expected, hint=hint))
    cells = [_cells(columns[name], _date_format(options, name)) for name in names]
    lengths = {len(each) for each in cells}
    if len(lengths) != 1:
        got = listed([f"{name}: {len(each)}" for name, each in zip(names, cells, strict=True)])
        problem = "the columns do not fit together"
        raise UserError(Diagnostic(problem, None, "columns of equal length", got))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*cells, strict=True))
    # Numbers are written here, in the usual form.
    forms = {key: choice.form for key, choice in (options.columns or {}).items()}
    usual: dict[str, object] = {
        "columns": {
            key: ColumnChoice.of(form.model_copy(update={"cells": None}))
            for key, form in forms.items()
        },
        "header": True,
        "delimiter": ",",
        "encoding": None,
        "decimal": ".",
        "thousands": None,
    }
    return read_steps(options.model_copy(update=usual), encoding.clock, text.getvalue().encode())


def _date_format(options: SeriesOptions, name: object) -> str | None:
    """Return the form in which a column's dates are written, if it is declared."""
    choices: Mapping[str, Any] = options.columns or {}
    form = choices[str(name)].form if str(name) in choices else None
    return form.format if isinstance(form, DateForm) else None


def _cells(values: Any, date_format: str | None) -> list[str]:
    """Return a column's values as cells of a table."""
    array = np.asarray(values)
    if array.dtype.kind == "M":
        array = array.astype("datetime64[ms]").astype(object)
    return [_cell(each, date_format) for each in array.tolist()]


def _cell(value: Any, date_format: str | None) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, (date, datetime)):
        return value.isoformat() if date_format is None else value.strftime(date_format)
    return repr(value) if isinstance(value, float) else str(value)
