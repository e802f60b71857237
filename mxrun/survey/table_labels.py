"""Survey of a table's label: which column it is, and whether it holds classes or numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import folded, listed, nearest
from mxrun.base.tensor import TensorSpec
from mxrun.config.dump import flow
from mxrun.datasets.csv import CsvOptions
from mxrun.io.tables.cells import number_text
from mxrun.io.tables.columns import TableOutline
from mxrun.io.tables.readers import MAX_KINDS, TableColumn
from mxrun.survey.columns import are_decimal_commas, why_useless
from mxrun.survey.date_forms import date_forms

CLASSES, NUMBERS, SEVERAL = "classes", "numbers", "several"
"""Kinds of labels: a class, one or several numbers, any of several classes."""

# Names of columns that are labels wherever they stand.
_LABELS = (
    *("label", "labels", "class", "classes", "target", "species", "category", "outcome", "y"),
    *("survived", "churn", "diagnosis"),
)
# Whole numbers with at most this many values are classes if they are small, or if they are few;
# up to the last number of values that may be doubted.
_MAX_NUMBERED, _MAX_FAR, _MAX_DOUBTED = 20, 10, 50
# Words with more values than this, or on average fewer rows a value, are no classes.
_MAX_CLASSES, _MIN_ROWS = 200, 3
_MAX_PROBLEMS = 12
# A number of a column, as --label gives it.
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_SEPARATORS = ("|", ";", ",")
_OTHER = "name another label column: --label COLUMN"


@dataclass(frozen=True)
class TableLabel:
    """Label columns and what they hold.

    why: the reason for the choice. options: keys of the data set, beside the columns. names: of the
    classes, if there are several in each label. doubts: what may be doubted, with another way.
    """

    columns: tuple[TableColumn, ...]
    why: str
    kind: str = NUMBERS
    options: Mapping[str, object] = field(default_factory=dict)
    names: Sequence[str] = ()
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return listed([*map(str, self.columns)])

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype of a label."""
        if self.kind == CLASSES:
            return TensorSpec((), "int32")
        if self.kind == SEVERAL:
            return TensorSpec((len(self.names),))
        return TensorSpec((len(self.columns),) if len(self.columns) > 1 else ())


def choose_label(
    outline: TableOutline, given: CsvOptions, named: str | None, task: str | None, path: Path
) -> TableLabel:
    """Return the label of a table.

    given: what is known of the data set; named: the column of --label; task: `classification` or
    `regression` if that is known. Raises UserError for a label that training cannot read.
    """
    found = _found(outline, given, named, path)
    if len(found.columns) > 1:
        return _several_columns(found, path)
    (column,) = found.columns
    separator = given.separator or ("" if given.classes or task else _separator(column))
    if column.gaps and not separator:
        hint = "fill the gaps in, or remove these rows"
        problem = f"{path}: the label {found} is missing in {column.gaps} of {outline.rows} rows"
        got = f"none in {column.gap_place}"
        raise UserError(Diagnostic(problem, None, "a label in each row", got, hint=hint))
    if separator:
        return _separated(found, separator, given)
    is_class = _is_class(column, outline.rows) or bool(given.classes)
    is_class = task == "classification" or (is_class and task is None)
    _check(found, is_class, outline, path)
    return _classes(found, given) if is_class else _numbers(found, outline)


def _found(outline: TableOutline, given: CsvOptions, named: str | None, path: Path) -> TableLabel:
    """Return the columns that the user names, or the one that looks most like a label."""
    columns = outline.columns
    if named is None and "label" in given.model_fields_set and given.label is not None:
        labels = given.label if isinstance(given.label, tuple) else (given.label,)
        chosen = named_columns(outline, [*map(str, labels)], path)
        return TableLabel(chosen, "named by label")
    if named is None:
        return _guessed(outline, path)
    is_one = named in [each.name for each in columns] or "," not in named
    parts = [named] if is_one else named.split(",")
    chosen = named_columns(outline, parts, path)
    return TableLabel(chosen, "named by --label")


def named_columns(
    outline: TableOutline, names: Sequence[str], path: Path | str
) -> tuple[TableColumn, ...]:
    """Return the columns that the user names; raises UserError for one that does not exist."""
    return tuple(_column(outline, name.strip(), path) for name in names)


def _column(outline: TableOutline, label: str, path: Path | str) -> TableColumn:
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
    return found[0]


def _guessed(outline: TableOutline, path: Path) -> TableLabel:
    """Return the column that looks most like a label. Raises UserError if none does.

    In this order: one that is named like a label, the last column unless it holds dates, the last
    column of words that are classes.
    """
    columns, rows = outline.columns, outline.rows
    last = columns[-1]
    named = [
        each
        for each in columns
        if folded(each.name) in _LABELS and (not each.gaps or _separator(each))
    ]
    dates = [each for each in columns if each.words and date_forms(each.texts)]
    others = [each for each in columns if each not in dates]
    words = [each for each in others if each.words and _is_class(each, rows)]
    is_number = not (last.words or last.gaps or why_useless(last, outline)[0])
    is_label = _is_class(last, rows) or is_number or bool(_separator(last))
    is_label &= last in others
    candidates = (
        (named[-1:], "its name is that of a label"),
        ([last] if is_label else [], "the last column"),
        (words[-1:], "the last column of words with few values"),
    )
    for found, why in candidates:
        if found:
            doubts: tuple[str, ...] = ()
            if why == candidates[-1][1]:
                held = "dates" if last in dates else why_useless(last, outline)[0]
                held = f"{last.gaps} missing" if last.gaps else held
                doubts = (
                    f"the label is {found[0]}, not the last column {last}, which holds "
                    f"{held or 'words'}; `--label COLUMN` names another",
                )
            return TableLabel((found[0],), why, doubts=doubts)
    problem = f"{path}: no column looks like a label"
    expected = "a last column of numbers, or a column of words with few values"
    got = "; ".join(f"{each}: {_kind(each)}" for each in columns[-_MAX_PROBLEMS:])
    raise UserError(Diagnostic(problem, None, expected, got, hint="name it: --label COLUMN"))


def _is_class(column: TableColumn, rows: int) -> bool:
    """Return whether a column's values are classes: words with few values, or few whole numbers."""
    if column.gaps:
        return False
    if column.words or column.codes:
        kinds = _kinds(column)
        return 2 <= kinds <= min(_MAX_CLASSES, max(2, rows // _MIN_ROWS))
    values = np.unique(column.numbers)
    if not (values == np.floor(values)).all():
        return False
    are_small = values[0] >= 0 and values[-1] < _MAX_NUMBERED
    most = _MAX_NUMBERED if are_small else _MAX_FAR
    return 2 <= len(values) <= min(most, max(2, rows // _MIN_ROWS))


def _kinds(column: TableColumn) -> int:
    """Return the number of distinct values of a column of words, at most `MAX_KINDS`."""
    return len(column.kinds) or MAX_KINDS


def _classes(found: TableLabel, given: CsvOptions) -> TableLabel:
    """Return a label of classes; numbers that do not count from 0 are named."""
    (column,) = found.columns
    if given.classes:
        return replace(found, kind=CLASSES, options={"classes": list(given.classes)})
    if column.words or column.codes:
        is_code = column.codes and not column.words
        codes = {"classes": sorted(column.kinds)} if is_code else {}
        return replace(found, kind=CLASSES, options=codes)
    values = np.unique(column.numbers)
    if values.tolist() == list(range(len(values))):
        return replace(found, kind=CLASSES)
    names = [int(each) if each.is_integer() else number_text(each) for each in values.tolist()]
    shown = listed([*map(str, names)])
    doubt = (
        f"the numbers {shown} of {column} are taken for classes (classes: {flow(names[:10])}); "
        "`--task regression` predicts them as numbers"
    )
    options = {"classes": names}
    return replace(found, kind=CLASSES, options=options, doubts=(*found.doubts, doubt))


def _numbers(found: TableLabel, outline: TableOutline) -> TableLabel:
    """Return a label of numbers to predict."""
    (column,) = found.columns
    values = np.unique(column.numbers)
    if len(values) > min(_MAX_DOUBTED, outline.rows // _MIN_ROWS) or (values % 1).any():
        return found
    doubt = (
        f"the {len(values)} different whole numbers of {column} are predicted as numbers; "
        "`--task classification` takes them for classes"
    )
    return replace(found, doubts=(*found.doubts, doubt))


def _several_columns(found: TableLabel, path: Path) -> TableLabel:
    """Return several columns as numbers, or, where all are 0 or 1, as one class each."""
    for column in found.columns:
        words = {text.lower() for text in column.texts}
        if column.gaps or not words <= {"true", "false"}:
            problem = f"{path}: the label {column} is no column of numbers"
            got = f"{column.gaps} missing" if column.gaps else column.word
            expected = "numbers, or true and false, in each label column"
            raise UserError(Diagnostic(problem, None, expected, got))
    are_flags = all(each.words or set(each.numbers) <= {0, 1} for each in found.columns)
    if not are_flags:
        return found
    return replace(found, kind=SEVERAL, names=[str(each.label) for each in found.columns])


def _separator(column: TableColumn) -> str:
    """Return the separator of several classes in the labels; empty if none has several."""
    for separator in _SEPARATORS:
        parts = Counter(
            part.strip() for text in column.kinds for part in text.split(separator) if part.strip()
        )
        several = sum(separator in text for text in column.kinds)
        if several and len(parts) < len(column.kinds) and len(parts) <= _MAX_CLASSES:
            are_shared = sum(count > 1 for count in parts.values())
            if 2 * are_shared >= len(parts) > 1:
                return separator
    return ""


def _separated(found: TableLabel, separator: str, given: CsvOptions) -> TableLabel:
    (column,) = found.columns
    names = list(map(str, given.classes)) or sorted(
        {part.strip() for text in column.kinds for part in text.split(separator)} - {""}
    )
    doubts = found.doubts
    if given.separator is None:
        doubts += (
            f"{column} has several classes in a label, separated by {separator!r}, as "
            f"{next(text for text in column.kinds if separator in text)[:30]!r}; "
            "`--task classification` takes each text for one class",
        )
    options = {"separator": separator, "classes": names}
    return replace(found, kind=SEVERAL, options=options, names=names, doubts=doubts)


def _check(label: TableLabel, is_class: bool, outline: TableOutline, path: Path) -> None:
    """Raise UserError for a label column that training cannot read."""
    (column,) = label.columns
    where = f"{path}: the label {column}"
    if are_decimal_commas(column):
        problem = f"{where} has numbers with a comma before decimals, but others have a point"
        raise UserError(
            Diagnostic(
                problem, None, "numbers or words", column.word, hint='decimal="," reads commas'
            )
        )
    kinds = _kinds(column) if column.words else len(np.unique(column.numbers))
    if kinds < 2:
        only = repr(column.word) if column.words else f"{column.numbers[0]:g}"
        problem = f"{where} has only one value, {only}"
        raise UserError(Diagnostic(problem, None, "at least 2 values", hint=_OTHER))
    if (column.words or is_class) and not (is_class and kinds <= _MAX_CLASSES):
        some = f"at least {kinds}" if kinds >= MAX_KINDS else str(kinds)
        problem = f"{where} has too many distinct {'words' if column.words else 'numbers'}"
        expected = f"at most {_MAX_CLASSES} classes, of {_MIN_ROWS} rows each"
        got = f"{some} in {outline.rows} rows"
        raise UserError(Diagnostic(f"{problem} for classes", None, expected, got, hint=_OTHER))


def _kind(column: TableColumn) -> str:
    """Return what a column holds, for a message."""
    if column.gaps:
        return f"{column.gaps} missing"
    return f"{len(column.kinds)} words" if column.words else "numbers"
