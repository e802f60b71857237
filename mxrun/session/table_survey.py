"""Survey of a table: which column is the label, and which of the others can be data."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import folded, listed, nearest
from mxrun.base.tensor import TensorSpec
from mxrun.datasets.csv import CsvOptions, read
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.files import user_path
from mxrun.io.tables.columns import MAX_KINDS, TableColumn, TableOutline, outline_table
from mxrun.session.data_survey import (
    DataSurvey,
    check_class_counts,
    class_counts,
    class_warnings,
    rounded,
    split_parts,
    statistics,
)

# Names of columns that are labels wherever they stand.
_LABELS = ("label", "labels", "class", "classes", "target", "species", "category", "outcome", "y")
# Names of columns that number the rows.
_NUMBERS = ("id", "index", "row", "rownumber", "unnamed0", "number", "no", "")
# Whole numbers with at most this many values are classes; more are a quantity.
_MAX_NUMBERED = 20
# Words with more values than this, or on average fewer rows a value, are no classes.
_MAX_CLASSES, _MIN_ROWS = 200, 3
_MAX_PROBLEMS = 12
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
    path = user_path(source)
    outline = outline_table(path)
    chosen = _given_label(outline, label, path) if label else _guessed_label(outline, path)
    _check_label(chosen, path, outline)
    others = [each for each in outline.columns if each is not chosen.column]
    repeated = _repeated_names(outline)
    unusable = {
        each.number: why for each in others if (why := _why_unusable(each, outline, repeated))
    }
    data = [each for each in others if each.number not in unusable]
    if not data:
        problem = f"{path}: no column is left for the data"
        expected = "a column of numbers without missing ones, besides the label"
        whole = "; ".join([*_exclusions(others, unusable)][:_MAX_PROBLEMS])
        raise UserError(Diagnostic(problem, None, expected, whole))
    options = _options(source, outline, chosen, data, bool(unusable))
    complete = _read(options, data, chosen)
    where = f"{path}: the label {chosen.column}"
    if chosen.is_class:
        hint = "name another label column: --label COLUMN"
        check_class_counts(class_counts(complete), where, hint)
    train, evaluation, measured = split_parts(complete, "", str(path))
    mean, std = statistics(measured.fields["data"].records)
    return DataSurvey(
        "csv",
        options,
        train,
        evaluation,
        (len(data),),
        mean,
        std,
        target=None if chosen.is_class else _target(measured),
        comments=_comments(chosen, outline, list(_exclusions(others, unusable))),
        facts=_facts(outline, chosen, data),
        warnings=(*class_warnings(train.counts), *_gap_warnings(others, outline.rows)),
    )


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
        raise UserError(Diagnostic(problem, None, known, label, nearest(label, names)))
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
    is_label = _is_class(last, rows) or not _why_unusable(last, outline, _repeated_names(outline))
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
    raise UserError(Diagnostic(problem, None, expected, got, "name it: --label COLUMN"))


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
    """Return the distinct values of a column of words; numbers among them are one value."""
    numbers = int(np.isfinite(column.numbers).sum())
    return {**column.kinds, **({"numbers": numbers} if numbers else {})}


def _check_label(label: _Label, path: Path, outline: TableOutline) -> None:
    """Raise UserError for a label column that training cannot read."""
    column = label.column
    where = f"{path}: the label {column}"
    if column.gaps:
        problem = f"{where} is missing in {column.gaps} of {outline.rows} rows"
        hint = "fill the gaps in, or remove these rows"
        raise UserError(
            Diagnostic(
                problem, None, "a label in each row", f"none in line {column.gap_line}", hint
            )
        )
    if column.words and not label.is_class:
        kinds = len(column.kinds)
        some = f"at least {kinds}" if kinds >= MAX_KINDS else str(kinds)
        problem = f"{where} has too many distinct words for classes"
        expected = f"at most {_MAX_CLASSES} classes, of {_MIN_ROWS} rows each"
        got = f"{some} in {outline.rows} rows" if kinds > 1 else "one word in all rows"
        problem = problem if kinds > 1 else f"{where} has only one value, {column.word!r}"
        hint = "name another label column: --label COLUMN"
        raise UserError(Diagnostic(problem, None, expected, got, hint))
    if not column.words and len(np.unique(column.numbers)) < 2:
        problem = f"{where} has only one value, {column.numbers[0]:g}"
        hint = "name another label column: --label COLUMN"
        raise UserError(Diagnostic(problem, None, "at least 2 values", hint=hint))


def _repeated_names(outline: TableOutline) -> frozenset[str]:
    """Return the names that several columns have."""
    counts = Counter(each.name for each in outline.columns)
    return frozenset(name for name, count in counts.items() if count > 1)


def _why_unusable(column: TableColumn, outline: TableOutline, repeated: Collection[str]) -> str:
    """Return why a column cannot be data; empty if it can. repeated: names of several columns."""
    rows = outline.rows
    if outline.has_header and column.name in repeated:
        return "the header has its name several times"
    if column.gaps == rows:
        return "every value is missing"
    if column.words:
        kinds = f"{len(column.kinds)} different" if len(column.kinds) < MAX_KINDS else "many"
        if column.words + column.gaps < rows:
            return f"{column.words} of {rows} values are no numbers, such as {column.word[:20]!r}"
        return f"words ({kinds}, such as {column.word[:20]!r})"
    if column.gaps:
        return f"{column.gaps} of {rows} values are missing, first in line {column.gap_line}"
    if column.numbers.min() == column.numbers.max():
        return f"always {column.numbers[0]:g}"
    if _numbers_rows(column, outline):
        return "it only numbers the rows"
    return ""


def _numbers_rows(column: TableColumn, outline: TableOutline) -> bool:
    """Return whether a column counts the rows: by ones, or by any numbers if named like that."""
    if len(column.numbers) < 3:
        return False
    if not (column.numbers == np.floor(column.numbers)).all():
        return False
    if bool((np.diff(column.numbers) == 1).all()):
        return True
    is_named = outline.has_header and folded(column.name) in _NUMBERS
    return is_named and len(np.unique(column.numbers)) == len(column.numbers)


def _options(
    source: str,
    outline: TableOutline,
    label: _Label,
    data: Sequence[TableColumn],
    is_selection: bool,
) -> dict[str, object]:
    """Return the options of the data set `csv`; defaults are left out."""
    repeated = _repeated_names(outline)
    # A name that is not unique does not identify its column.
    by_name = all(each.name not in repeated and each.name for each in (*data, label.column))
    options: dict[str, object] = {"path": source}
    if outline.has_header:
        options["header"] = True
    if outline.delimiter:
        options["delimiter"] = outline.delimiter
    if by_name or label.column is not outline.columns[-1]:
        options["label"] = label.column.name if by_name else label.column.number
    if is_selection or (outline.has_header and not by_name):
        options["data"] = [each.name if by_name else each.number for each in data]
    return options


def _read(options: Mapping[str, object], data: Sequence[TableColumn], label: _Label) -> Dataset:
    """Read the table as training will."""
    dtype = "int32" if label.is_class else "float32"
    inputs = {"data": TensorSpec((len(data),), "float32"), "label": TensorSpec((), dtype)}
    return read(CsvOptions.model_validate_json(json.dumps(options)), "all", inputs)


def _target(measured: Dataset) -> tuple[float, float]:
    """Return mean and deviation of the labels of training."""
    labels = measured.fields["label"].records.astype(np.float64).reshape(-1, 1)
    mean, std = rounded(labels.mean(0), labels.std(0))
    return mean[0], std[0]


def _exclusions(columns: Sequence[TableColumn], unusable: Mapping[int, str]) -> list[str]:
    return [f"{each}: {unusable[each.number]}" for each in columns if each.number in unusable]


def _comments(label: _Label, outline: TableOutline, excluded: Sequence[str]) -> dict[str, str]:
    """Return comments on the options."""
    comments = {"label": f"{label.why}; `mxrun init --label COLUMN` names another"}
    if outline.has_header:
        comments["header"] = "the first row names the columns"
    if excluded:
        more = [f"and {len(excluded) - _MAX_PROBLEMS} more"] * (len(excluded) > _MAX_PROBLEMS)
        comments["data"] = "\n".join(
            ["Left out, because only columns of numbers without gaps can be read:"]
            + [f"- {text}" for text in (*excluded[:_MAX_PROBLEMS], *more)]
            + ["A column of categories becomes readable as one column of 0 and 1 for each"]
            + ["category, a column with gaps once they are filled in."]
        )
    return comments


def _facts(outline: TableOutline, label: _Label, data: Sequence[TableColumn]) -> tuple[str, ...]:
    separator = {"": "as detected", " ": "blanks"}.get(outline.delimiter, outline.delimiter)
    header = "with a header" if outline.has_header else "without a header"
    kind = "classes" if label.is_class else "numbers to predict (regression)"
    separated = f", separated by {separator}" if outline.delimiter else ""
    return (
        f"{outline.rows:,} rows of {len(outline.columns)} columns, {header}{separated}",
        f"label: {label.column}, {kind} ({label.why})",
        f"data: {len(data)} of the {len(outline.columns) - 1} other columns",
    )


def _gap_warnings(columns: Sequence[TableColumn], rows: int) -> tuple[str, ...]:
    """Return a warning about columns that are left out although few of their values are missing."""
    few = [each for each in columns if 0 < each.gaps < rows / 2 and not each.words]
    if not few:
        return ()
    texts = [f"{each} ({each.gaps} of {rows})" for each in few]
    return (
        f"left out because values are missing: {listed(texts)}; to use them, fill the gaps in, or "
        "remove these rows",
    )


def _kind(column: TableColumn) -> str:
    """Return what a column holds, for a message."""
    if column.gaps:
        return f"{column.gaps} missing"
    return f"{len(column.kinds)} words" if column.words else "numbers"
