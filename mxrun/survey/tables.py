"""Survey of a table: which column is the label, and how the others become numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.base.params import Parameters
from mxrun.datasets.csv import CsvOptions, read
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.registry import TABLE
from mxrun.io.paths import find_files
from mxrun.io.tables.cells import CellForm
from mxrun.io.tables.columns import TableOutline
from mxrun.io.tables.encoding import TableEncoding
from mxrun.io.tables.forms import ColumnForm, select_forms
from mxrun.io.tables.learn import learn_encoding
from mxrun.io.tables.readers import TableColumn
from mxrun.report.printable import printable_line
from mxrun.survey.cell_forms import survey_cells, written_cells
from mxrun.survey.columns import ColumnDraft, choose_form
from mxrun.survey.survey import (
    DataSurvey,
    check_class_counts,
    class_counts,
    class_warnings,
    rounded,
    split_parts,
)
from mxrun.survey.table_labels import CLASSES, NUMBERS, SEVERAL, TableLabel, choose_label

_MAX_PROBLEMS = 12
# Columns up to which each one is written into the config, and numbers of a row that are named.
_MAX_WRITTEN, _MAX_INPUTS = 40, 20


def survey_table(
    source: str,
    read: tuple[TableOutline, tuple[str, ...]],
    label: str | None,
    task: str | None,
    given: Parameters,
) -> DataSurvey:
    """Look at a table in a text file.

    read: its outline, and what was decided of its cells. label: name or number of the label column;
    task: `classification` or `regression`, by default as the label says; given: the options of the
    data set that are known. Raises UserError if the table cannot be read, or has no label or no
    column of numbers.
    """
    assert isinstance(given, CsvOptions)
    outline, decided = read
    files, own = find_files(source), given.model_fields_set
    path = files[0]
    chosen = choose_label(outline, given, label, task, path)
    labels = {each.number for each in chosen.columns}
    if any(map(outline.own_cells, chosen.columns)):
        outline, decided = survey_cells(files, given.form, own, labels)
        chosen = choose_label(outline, given, label, task, path)
    others = [each for each in outline.columns if each.number not in labels]
    choices = _choices(others, outline, given)
    data = [each for each in choices if not each.is_ignored]
    if not data:
        problem = f"{path}: no column is left for the data"
        expected = "a column of numbers or categories, besides the label"
        whole = "; ".join(f"{each.column}: {each.comment}" for each in choices[:_MAX_PROBLEMS])
        raise UserError(Diagnostic(problem, None, expected, whole))
    options = _options(source, outline, chosen, choices, given)
    complete = _records(options, chosen)
    if chosen.kind == CLASSES:
        hint = "name another label column: --label COLUMN"
        check_class_counts(class_counts(complete), f"{path}: the label {chosen}", hint)
    train, evaluation, measured = split_parts(complete, "", str(path))
    assert measured.features is not None
    encoding = learn_encoding(measured.features)
    records = measured.fields["label"].records
    return DataSurvey(
        TABLE,
        options,
        train,
        evaluation,
        (len(encoding.inputs),),
        target=_target(records) if chosen.kind == NUMBERS else None,
        label_shape=records.shape[1:],
        comments=_comments(chosen, outline, choices),
        facts=_facts(outline, chosen, choices, encoding),
        warnings=(*outline.notes, *class_warnings(train.counts)),
        left_out=_left_out(choices),
        doubts=(*decided, *chosen.doubts, *_doubts(choices)),
    )


def _choices(
    columns: Sequence[TableColumn], outline: TableOutline, given: CsvOptions
) -> list[ColumnDraft]:
    """Return the treatment of each data column; what the user has given goes first."""
    treated = dict(given.columns or {})
    names = [each.name if outline.has_header else "" for each in columns]
    forms, problems = select_forms(
        {key: choice.form for key, choice in treated.items()},
        names,
        [each.number for each in columns],
        str(given.path),
    )
    if problems:
        raise UserError(problems)
    return [
        _with_cells(choose_form(column, outline), outline)
        if type(form) is ColumnForm
        else ColumnDraft(column, _written(form), "as given")
        for column, form in zip(columns, forms, strict=True)
    ]


def _with_cells(draft: ColumnDraft, outline: TableOutline) -> ColumnDraft:
    """Return the treatment with the form of the column's cells, if it is not the table's."""
    own = outline.own_cells(draft.column)
    if own is None or draft.is_ignored:
        return draft
    form = draft.form if isinstance(draft.form, dict) else {draft.form: {}}
    form = {kind: {**given, "cells": written_cells(own)} for kind, given in form.items()}
    return replace(draft, form=form, is_auto=False)


def _written(form: ColumnForm) -> object:
    """Return a treatment as a config writes it."""
    parameters = form.model_dump(exclude_unset=True, mode="json")
    return {form.kind: parameters} if parameters else form.kind


def _left_out(choices: Sequence[ColumnDraft]) -> tuple[str, ...]:
    """Return a line for each column that is left out; of many, one for each reason."""
    ignored = [each for each in choices if each.is_ignored]
    if len(ignored) <= _MAX_WRITTEN:
        lines = [(str(each.column), each.comment, each.otherwise) for each in ignored]
    else:
        reasons: dict[str, list[ColumnDraft]] = {}
        for each in ignored:
            reasons.setdefault(re.split(r" \(|[0-9'\"]", each.comment)[0], []).append(each)
        lines = [
            (listed([*map(str, (each.column for each in found))]), found[0].comment, "")
            for found in reasons.values()
        ]
    return tuple(
        f"{named}: {why}{'; ' * bool(otherwise)}{otherwise}" for named, why, otherwise in lines
    )


def _doubts(choices: Sequence[ColumnDraft]) -> Iterator[str]:
    """Yield a line for each treatment that may be doubted."""
    yield from (each.doubt for each in choices if each.doubt)
    rare = [each.column for each in choices if not each.is_ignored and each.is_rarely_known]
    if rare:
        yield (
            f"missing in nearly all rows: {listed([*map(str, rare)])}; "
            "`columns: {NAME: ignore}` leaves one out"
        )
    few = [str(each.column) for each in choices if each.may_be_category]
    if few:
        yield (
            f"whole numbers with few values are read as numbers: {listed(few)}; "
            "`columns: {NAME: category}` makes a category of one"
        )


def _options(
    source: str,
    outline: TableOutline,
    label: TableLabel,
    choices: Sequence[ColumnDraft],
    given: CsvOptions,
) -> dict[str, object]:
    """Return the options of the data set `csv`; defaults are left out."""
    by_name, options = outline.by_name, file_options(source, outline)
    named = [each.name if by_name else each.number for each in label.columns]
    if by_name or label.columns != outline.columns[-1:]:
        options["label"] = named if len(named) > 1 else named[0]
    options |= label.options
    every = len(choices) <= _MAX_WRITTEN
    forms = {outline.key(each.column): each.form for each in choices if every or not each.is_auto}
    return {**options, "columns": forms or "auto"}


def file_options(source: str, outline: TableOutline) -> dict[str, object]:
    """Return the options of a table's file and cells; defaults are left out."""
    form = outline.form
    options: dict[str, object] = {"path": source, "header": outline.has_header}
    if form.delimiter:
        options["delimiter"] = form.delimiter
    if form.encoding:
        options["encoding"] = form.encoding
    for key in CellForm.model_fields:
        value = getattr(form.cells, key)
        if value != CellForm.model_fields[key].default:
            options[key] = list(value) if isinstance(value, tuple) else value
    return options


def _records(options: Mapping[str, object], label: TableLabel) -> Dataset:
    """Read the table as training will."""
    given = CsvOptions.model_validate_json(json.dumps(options))
    return read(given, "all", {"label": label.spec})


def _target(labels: NDArray[np.float32]) -> tuple[float, float]:
    """Return mean and deviation of the labels of training."""
    values = labels.astype(np.float64).reshape(-1, 1)
    mean, std = rounded(values.mean(0), values.std(0))
    return mean[0], std[0]


def _comments(
    label: TableLabel, outline: TableOutline, choices: Sequence[ColumnDraft]
) -> dict[str, str]:
    """Return comments on the options, those of columns as `columns.KEY`."""
    by_name = outline.by_name
    named = "the first row names the columns" if outline.has_header else "no row of names"
    columns = {}
    for each in choices:
        name = "" if by_name or not each.column.name else f"{each.column}: "
        columns[f"columns.{outline.key(each.column)}"] = f"{name}{each.comment}"
    return {
        "label": f"{label.why}; `mxrun init --label COLUMN` names another",
        "header": named,
        "columns": "How each column becomes numbers. Categories, means and deviations are learned "
        "from the training part and saved with the run.",
        **columns,
    }


def _facts(
    outline: TableOutline,
    label: TableLabel,
    choices: Sequence[ColumnDraft],
    encoding: TableEncoding,
) -> tuple[str, ...]:
    delimiter = outline.form.delimiter
    separator = {" ": "blanks"}.get(delimiter, delimiter)
    header = "with a header" if outline.has_header else "without a header"
    kind = {
        CLASSES: "classes",
        NUMBERS: "numbers to predict (regression)",
        SEVERAL: f"any of {len(label.names)} classes: {listed(label.names)}",
    }[label.kind]
    separated = f", separated by {separator}" if delimiter else ""
    used = sum(not each.is_ignored for each in choices)
    numbers = len(encoding.inputs)
    inputs = printable_line(listed(encoding.inputs, _MAX_INPUTS))
    return (
        f"{outline.rows:,} rows of {len(outline.columns)} columns, {header}{separated}",
        f"label: {label}, {kind} ({label.why})",
        f"data: {used} of the {len(choices)} other columns, as {numbers} numbers: {inputs}",
    )
