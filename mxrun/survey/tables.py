"""Survey of a table: which column is the label, and how the others become numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import folded, listed, nearest
from mxrun.base.tensor import TensorSpec
from mxrun.datasets.csv import CsvOptions, read
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.registry import TABLE
from mxrun.io.paths import find_files
from mxrun.io.tables.cells import POINT_HINT
from mxrun.io.tables.columns import TableOutline, outline_table
from mxrun.io.tables.encoding import TableEncoding
from mxrun.io.tables.learn import learn_encoding
from mxrun.io.tables.readers import MAX_KINDS, TableColumn
from mxrun.survey.columns import (
    ColumnDraft,
    are_decimal_commas,
    choose_form,
    repeated_names,
    why_useless,
)
from mxrun.survey.survey import (
    DataSurvey,
    check_class_counts,
    class_counts,
    class_warnings,
    rounded,
    split_parts,
)

# Names of columns that are labels wherever they stand.
_LABELS = (
    *("label", "labels", "class", "classes", "target", "species", "category", "outcome", "y"),
    *("survived", "churn", "diagnosis"),
)
# Whole numbers with at most this many values are classes; more are a quantity.
_MAX_NUMBERED = 20
# Words with more values than this, or on average fewer rows a value, are no classes.
_MAX_CLASSES, _MIN_ROWS = 200, 3
_MAX_PROBLEMS = 12
# Columns up to which each one is written into the config, and numbers of a row that are named.
_MAX_WRITTEN, _MAX_INPUTS = 40, 20
# A number of a column, as --label gives it.
_NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True)
class _Label:
    """Label column. is_class: whether it holds classes; why: the reason for the choice."""

    column: TableColumn
    is_class: bool
    why: str


def survey_table(source: str, label: str | None = None) -> DataSurvey:
    """Look at a table in a text file; label: name or number of the label column.

    Raises UserError if it cannot be read, or has no label or no column of numbers.
    """
    files = find_files(source)
    outline, path = outline_table(files), files[0]
    chosen = _given_label(outline, label, path) if label else _guessed_label(outline, path)
    _check_label(chosen, path, outline)
    others = [each for each in outline.columns if each is not chosen.column]
    choices = [choose_form(each, outline) for each in others]
    data = [each for each in choices if not each.is_ignored]
    if not data:
        problem = f"{path}: no column is left for the data"
        expected = "a column of numbers or categories, besides the label"
        whole = "; ".join(f"{each.column}: {each.comment}" for each in choices[:_MAX_PROBLEMS])
        raise UserError(Diagnostic(problem, None, expected, whole))
    options = _options(source, outline, chosen, choices)
    complete = _read(options, chosen)
    where = f"{path}: the label {chosen.column}"
    if chosen.is_class:
        hint = "name another label column: --label COLUMN"
        check_class_counts(class_counts(complete), where, hint)
    train, evaluation, measured = split_parts(complete, "", str(path))
    assert measured.features is not None
    encoding = learn_encoding(measured.features)
    return DataSurvey(
        TABLE,
        options,
        train,
        evaluation,
        (len(encoding.inputs),),
        target=None if chosen.is_class else _target(measured),
        comments=_comments(chosen, outline, choices),
        facts=_facts(outline, chosen, choices, encoding),
        warnings=(*outline.notes, *class_warnings(train.counts), *_comma_warnings(choices)),
    )


def _comma_warnings(choices: Sequence[ColumnDraft]) -> tuple[str, ...]:
    """Return a warning about columns of numbers that are not read as numbers."""
    found = [str(each.column) for each in choices if are_decimal_commas(each.column)]
    if not found:
        return ()
    return (f"columns left out, with a comma before decimals: {listed(found)}; write points",)


def _given_label(outline: TableOutline, label: str, path: Path) -> _Label:
    """Return the column that the user names; raises UserError if there is none."""
    columns = outline.columns
    found = [each for each in columns if each.name == label and outline.has_header]
    if not found and _NUMBER.fullmatch(label) and -len(columns) <= int(label) < len(columns):
        found = [columns[int(label)]]
    if not found:
        names = [each.name for each in columns if each.name]
        known = listed(names, _MAX_PROBLEMS) if names else f"0 to {len(columns) - 1}"
        problem = f"{path}: no column is named {label!r}"
        raise UserError(Diagnostic(problem, None, known, label, hint=nearest(label, names)))
    return _Label(found[0], _is_class(found[0], outline.rows), "named by --label")


def _guessed_label(outline: TableOutline, path: Path) -> _Label:
    """Return the column that looks most like a label. Raises UserError if none does.

    In this order: one that is named like a label, the last column, the last column of words that
    are classes.
    """
    columns, rows = outline.columns, outline.rows
    last = columns[-1]
    named = [each for each in columns if folded(each.name) in _LABELS and not each.gaps]
    words = [each for each in columns if each.words and _is_class(each, rows)]
    is_number = not (last.words or last.gaps or why_useless(last, outline))
    is_label = _is_class(last, rows) or is_number
    candidates = (
        (named[-1:], "its name is that of a label"),
        ([last] if is_label else [], "the last column"),
        (words[-1:], "the last column of words with few values"),
    )
    for found, why in candidates:
        if found:
            return _Label(found[0], _is_class(found[0], rows), why)
    problem = f"{path}: no column looks like a label"
    expected = "a last column of numbers, or a column of words with few values"
    got = "; ".join(f"{each}: {_kind(each)}" for each in columns[-_MAX_PROBLEMS:])
    raise UserError(Diagnostic(problem, None, expected, got, hint="name it: --label COLUMN"))


def _is_class(column: TableColumn, rows: int) -> bool:
    """Return whether a column's values are classes: words with few values, or small numbers."""
    if column.gaps:
        return False
    if column.words:
        kinds = len(_kinds(column))
        return 2 <= kinds <= min(_MAX_CLASSES, max(2, rows // _MIN_ROWS))
    values = np.unique(column.numbers)
    whole = bool((values == np.floor(values)).all())
    few = 2 <= len(values) <= min(_MAX_NUMBERED, max(2, rows // _MIN_ROWS))
    return whole and few and values[0] >= 0 and values[-1] < _MAX_NUMBERED


def _kinds(column: TableColumn) -> Mapping[str, int]:
    """Return the distinct values of a column of words; too many for a label if there are more."""
    return column.kinds or dict.fromkeys(map(str, range(MAX_KINDS)), 1)


def _check_label(label: _Label, path: Path, outline: TableOutline) -> None:
    """Raise UserError for a label column that training cannot read."""
    column = label.column
    where = f"{path}: the label {column}"
    if column.gaps:
        problem = f"{where} is missing in {column.gaps} of {outline.rows} rows"
        hint = "fill the gaps in, or remove these rows"
        raise UserError(
            Diagnostic(
                problem, None, "a label in each row", f"none in {column.gap_place}", hint=hint
            )
        )
    if are_decimal_commas(column):
        problem = f"{where} has numbers with a comma before decimals"
        raise UserError(Diagnostic(problem, None, "numbers or words", column.word, hint=POINT_HINT))
    if column.words and not label.is_class:
        kinds = len(_kinds(column))
        some = f"at least {kinds}" if kinds >= MAX_KINDS else str(kinds)
        problem = f"{where} has too many distinct words for classes"
        expected = f"at most {_MAX_CLASSES} classes, of {_MIN_ROWS} rows each"
        got = f"{some} in {outline.rows} rows" if kinds > 1 else "one word in all rows"
        problem = problem if kinds > 1 else f"{where} has only one value, {column.word!r}"
        hint = "name another label column: --label COLUMN"
        raise UserError(Diagnostic(problem, None, expected, got, hint=hint))
    if not column.words and len(np.unique(column.numbers)) < 2:
        problem = f"{where} has only one value, {column.numbers[0]:g}"
        hint = "name another label column: --label COLUMN"
        raise UserError(Diagnostic(problem, None, "at least 2 values", hint=hint))


def _options(
    source: str, outline: TableOutline, label: _Label, choices: Sequence[ColumnDraft]
) -> dict[str, object]:
    """Return the options of the data set `csv`; defaults are left out."""
    repeated = repeated_names(outline)
    # A name that is not unique does not identify its column.
    by_name = all(each.name not in repeated and each.name for each in outline.columns)
    options: dict[str, object] = {"path": source, "header": outline.has_header}
    if outline.delimiter:
        options["delimiter"] = outline.delimiter
    if by_name or label.column is not outline.columns[-1]:
        options["label"] = label.column.name if by_name else label.column.number
    written = [each for each in choices if len(choices) <= _MAX_WRITTEN or each.is_ignored]
    written = written or [each for each in choices if each.form not in ("number", "category")]
    forms = {_key(each.column, by_name): each.form for each in written}
    return {**options, "columns": forms or "auto"}


def _key(column: TableColumn, by_name: bool) -> str:
    return column.name if by_name else str(column.number)


def _read(options: Mapping[str, object], label: _Label) -> Dataset:
    """Read the table as training will."""
    dtype = "int32" if label.is_class else "float32"
    return read(
        CsvOptions.model_validate_json(json.dumps(options)),
        "all",
        {"label": TensorSpec((), dtype)},
    )


def _target(measured: Dataset) -> tuple[float, float]:
    """Return mean and deviation of the labels of training."""
    labels = measured.fields["label"].records.astype(np.float64).reshape(-1, 1)
    mean, std = rounded(labels.mean(0), labels.std(0))
    return mean[0], std[0]


def _comments(
    label: _Label, outline: TableOutline, choices: Sequence[ColumnDraft]
) -> dict[str, str]:
    """Return comments on the options, those of columns as `columns.KEY`."""
    repeated = repeated_names(outline)
    by_name = all(each.name not in repeated and each.name for each in outline.columns)
    named = "the first row names the columns" if outline.has_header else "no row of names"
    columns = {}
    for each in choices:
        name = "" if by_name or not each.column.name else f"{each.column}: "
        columns[f"columns.{_key(each.column, by_name)}"] = f"{name}{each.comment}"
    return {
        "label": f"{label.why}; `mxrun init --label COLUMN` names another",
        "header": named,
        "columns": "How each column becomes numbers. Categories, means and deviations are learned "
        "from the training part and saved with the run.",
        **columns,
    }


def _facts(
    outline: TableOutline,
    label: _Label,
    choices: Sequence[ColumnDraft],
    encoding: TableEncoding,
) -> tuple[str, ...]:
    separator = {"": "as detected", " ": "blanks"}.get(outline.delimiter, outline.delimiter)
    header = "with a header" if outline.has_header else "without a header"
    kind = "classes" if label.is_class else "numbers to predict (regression)"
    separated = f", separated by {separator}" if outline.delimiter else ""
    used = sum(not each.is_ignored for each in choices)
    numbers = len(encoding.inputs)
    inputs = listed(encoding.inputs, _MAX_INPUTS)
    return (
        f"{outline.rows:,} rows of {len(outline.columns)} columns, {header}{separated}",
        f"label: {label.column}, {kind} ({label.why})",
        f"data: {used} of the {len(choices)} other columns, as {numbers} numbers: {inputs}",
    )


def _kind(column: TableColumn) -> str:
    """Return what a column holds, for a message."""
    if column.gaps:
        return f"{column.gaps} missing"
    return f"{len(column.kinds)} words" if column.words else "numbers"
