"""Layout of a table in a text file: delimiter, header, and which column is what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.io.tables.cells import (
    DELIMITERS,
    USUAL_CELLS,
    CellForm,
    cell_text,
    detected_delimiter,
    split_row,
)
from mxrun.io.tables.forms import PLAIN_NUMBER, ColumnForm, IgnoreForm, select_forms
from mxrun.io.tables.headers import decide_header

# A column's name, if there is a header, or its number, counted from 0 or, if negative, from the
# end.
Column = int | str


@dataclass(frozen=True)
class TableForm:
    """Format of a table and the columns to read.

    delimiter: empty to detect it from the first row. header: whether the first row holds the
    columns' names; with `auto` it does as `decide_header` finds; with
    `maybe`, for a table from outside a data set, if it has one of the names in `data` or no number.
    data: the data columns; by default all but the label. words: whether labels may be words;
    texts: whether they are read as texts in any case; empty_labels: whether these may be missing.
    size:
    for a table from outside a data set, the number of data columns; the label column may be
    missing, and is skipped. columns: treatment of data columns by name, number or pattern; None if
    all are numbers, read as they are. forms: the treatment of each column in `data`, in its order,
    of those that `columns` leaves to what they hold. dtype: of numbers that are read as they are.
    unique: whether the columns that are read need different names. codes: whether columns that hold
    numbers such as 007 are read as words. encoding: the one declared; empty for
    that of the file's mark, or UTF-8. cells: form of numbers and of missing values. least: the
    fewest columns of a table that is looked at as it is.
    """

    delimiter: str = ""
    header: Literal["yes", "no", "auto", "maybe"] = "no"
    data: tuple[Column, ...] | None = None
    label: Column | tuple[Column, ...] | None = None
    words: bool = False
    texts: bool = False
    empty_labels: bool = False
    size: int | None = None
    columns: Mapping[str, ColumnForm] | None = None
    forms: tuple[ColumnForm, ...] = ()
    dtype: str = "float64"
    unique: bool = True
    codes: bool = False
    encoding: str = ""
    cells: CellForm = USUAL_CELLS
    least: int = 2

    @property
    def is_plain(self) -> bool:
        """Whether all data columns are numbers that are read as they are."""
        return self.columns is None and not self.forms

    @property
    def label_columns(self) -> tuple[Column, ...]:
        """The label columns: none, one or several."""
        if self.label is None:
            return ()
        return self.label if isinstance(self.label, tuple) else (self.label,)


PLAIN = TableForm()


@dataclass(frozen=True)
class TableLayout:
    """Layout of one file.

    columns: numbers of the data columns, with their names, if there is a header, and their forms.
    labels: numbers of the label columns. names: of all columns. hint: for rows that do not
    fit. notes: for the user, on what was decided and may be doubted.
    """

    divider: bytes
    width: int
    has_header: bool
    names: tuple[str, ...]
    columns: tuple[int, ...]
    forms: tuple[ColumnForm, ...]
    labels: tuple[int, ...]
    hint: str = field(default="", compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    def name(self, column: int) -> str:
        """Return a column's name; empty without a header."""
        return self.names[column] if self.names else ""


def find_layout(
    first: tuple[bytes, int], others: Sequence[bytes], form: TableForm, where: str
) -> TableLayout:
    """Return the layout of a file from its first rows.

    first: the row and its line; others: rows after it; where: the file's name. Raises UserError for
    columns that do not exist.
    """
    return _Layout(first, others, form, where).find()


def delimiter_hint(row: bytes, divider: bytes) -> str:
    """Return a hint to set the delimiter if a row seems to use another; else empty."""
    for other in (*DELIMITERS, b"|", b" "):
        if other in row.strip() and divider not in row:
            return f"write delimiter: {other.decode()!r} if that separates the columns"
    return ""


def _even_delimiters(rows: Sequence[bytes]) -> list[bytes]:
    """Return the delimiters that separate all rows into the same number of columns."""
    found = []
    for each in DELIMITERS:
        # Most tables have one of them.
        if each in rows[0] and len({len(split_row(row, each)) for row in rows}) == 1:
            found.append(each)
    return [each for each in found if len(split_row(rows[0], each)) > 1]


class _Layout:
    def __init__(
        self, first: tuple[bytes, int], others: Sequence[bytes], form: TableForm, where: str
    ) -> None:
        self._row, self._line = first
        self._form, self._where = form, where
        even = [] if form.delimiter else _even_delimiters((self._row, *others))
        usual = even[0] if even else detected_delimiter(self._row)
        self._divider, self._rivals = form.delimiter.encode() or usual, even[1:]
        self._cells = split_row(self._row, self._divider)
        self._others = [split_row(each, self._divider) for each in others]
        self._names: tuple[str, ...] = ()
        self._notes: list[str] = []

    def find(self) -> TableLayout:
        width, has_header = len(self._cells), self._are_names()
        if has_header:
            self._names = tuple(map(cell_text, self._cells))
        columns, labels = self._columns(width)
        columns, forms = self._treated(columns)
        self._check_names((*columns, *labels))
        hint = delimiter_hint(self._row, self._divider)
        self._note_delimiter()
        found = (
            self._divider,
            width,
            has_header,
            self._names,
            tuple(columns),
            tuple(forms),
            labels,
        )
        return TableLayout(*found, hint, tuple(self._notes))

    def _are_names(self) -> bool:
        form, cells = self._form, self._cells
        if form.header == "maybe":
            named = [each for each in form.data or () if isinstance(each, str)]
            if any(cell_text(cell) in named for cell in cells):
                return True
            plain = all(each.kind == "number" for each in form.forms)
            return plain and all(math.isnan(form.cells.number(cell)) for cell in cells)
        if form.header == "auto":
            keys = (*(form.data or ()), *form.label_columns, *(form.columns or ()))
            is_named = any(isinstance(key, str) and not _is_key(key) for key in keys)
            return is_named or self._is_header()
        return form.header == "yes"

    def _is_header(self) -> bool:
        """Return what the cells say, and note what is doubtful about it."""
        is_header, doubt = decide_header(self._cells, self._others, self._form.cells)
        if doubt:
            taken = "is taken for the names of the columns" if is_header else "is read as a record"
            hint = "`header: false` if it is a record, or `header: true` if it names the columns"
            self._note(f"the first row {taken}: {doubt}; write {hint}")
        return is_header

    def _note_delimiter(self) -> None:
        """Note another delimiter that separates all rows into the same number of columns."""
        for other in self._rivals:
            pair = f"{self._divider.decode()!r}, but {other.decode()!r} would do"
            self._note(f"the columns are separated by {pair} as well; write `delimiter: ...`")

    def _note(self, text: str) -> None:
        self._notes.append(f"{self._where}:{self._line}: {text}")

    def _treated(self, columns: Sequence[int]) -> tuple[list[int], list[ColumnForm]]:
        """Return the data columns that are not ignored, and their forms."""
        form = self._form
        if form.columns is None:
            forms: Sequence[ColumnForm] = form.forms or [PLAIN_NUMBER] * len(columns)
            # A table of another width than training's is reported when it is encoded.
            forms = [*forms, *[PLAIN_NUMBER] * (len(columns) - len(forms))]
            return list(columns), list(forms[: len(columns)])
        names = [self._names[column] if self._names else "" for column in columns]
        forms, problems = select_forms(form.columns, names, columns, self._where)
        if problems:
            raise UserError(problems)
        usual = form.forms or forms
        pairs = zip(forms, usual, strict=True)
        forms = [other if type(each) is ColumnForm else each for each, other in pairs]
        read = [at for at, each in enumerate(forms) if not isinstance(each, IgnoreForm)]
        if not read:
            self._refuse_no_data()
        return [columns[at] for at in read], [forms[at] for at in read]

    def _columns(self, width: int) -> tuple[list[int], tuple[int, ...]]:
        """Return the numbers of the data columns and of the label columns.

        Raises UserError for a column that does not exist.
        """
        form = self._form
        everything = list(range(width))
        by_name = bool(self._names) and any(isinstance(each, str) for each in form.data or ())
        if form.size is not None:
            if by_name and form.data is not None:
                return [self._column(column, width) for column in form.data], ()
            if width == form.size:
                return self._in_order(everything), ()
            try:
                return self._numbered(width)[0], ()
            except UserError:
                # The table has another layout than training's: its length will be reported as
                # wrong.
                return everything, ()
        columns, labels = self._numbered(width)
        if not columns:
            self._refuse_no_data()
        return columns, labels

    def _refuse_no_data(self) -> None:
        hint = delimiter_hint(self._row, self._divider)
        problem = f"{self._where}: no column is left for the data"
        raise UserError(Diagnostic(problem, hint=hint))

    def _in_order(self, columns: list[int]) -> list[int]:
        """Return the columns of a table that has only data, in the order of training's columns."""
        columns_read = self._form.data or ()
        # Negative numbers and names cannot be applied to a table of another width.
        if not all(isinstance(each, int) and each >= 0 for each in columns_read):
            return columns
        ranks = {each: rank for rank, each in enumerate(sorted(set(columns_read)))}
        return [ranks[each] for each in columns_read] if len(ranks) == len(columns) else columns

    def _numbered(self, width: int) -> tuple[list[int], tuple[int, ...]]:
        """Return data columns and label columns of a table with the layout of training's."""
        form = self._form
        labels = tuple(self._column(label, width) for label in form.label_columns)
        if form.data is None:
            return [at for at in range(width) if at not in labels], labels
        return [self._column(column, width) for column in form.data], labels

    def _column(self, column: Column, width: int) -> int:
        """Return a column's number, from 0; raises UserError if it does not exist."""
        if isinstance(column, int):
            if -width <= column < width:
                return column % width
            problem = f"{self._where}: there is no column {column}"
            hint = delimiter_hint(self._row, self._divider)
            raise UserError(
                Diagnostic(problem, None, f"{-width} to {width - 1}", str(column), hint=hint)
            )
        if column in self._names:
            return self._names.index(column)
        expected = f"one of {', '.join(self._names)}" if self._names else "`header: true`"
        hint = nearest(column, self._names)
        hint = hint or (delimiter_hint(self._row, self._divider) if width == 1 else "")
        problem = f"{self._where}: no column is named {column!r}"
        raise UserError(Diagnostic(problem, None, expected, column, hint=hint))

    def _check_names(self, columns_read: Sequence[int]) -> None:
        """Raise UserError if the header has the name of a column that is read more than once."""
        found = []
        columns: dict[str, list[int]] = {}
        columns_read = columns_read if self._form.unique else ()
        for number, name in enumerate(self._names, 1):
            columns.setdefault(name, []).append(number)
        for name in dict.fromkeys(self._names[column] for column in columns_read if self._names):
            same = columns[name]
            if len(same) > 1:
                found.append(
                    Diagnostic(
                        f"{self._where}:{self._line}:{same[1]}: the header has the name {name!r} "
                        f"{len(same)} times",
                        None,
                        "a name of its own for each column that is read",
                        f"{name!r} in columns {', '.join(map(str, same))}",
                        hint="rename one in the file, or name the columns that are data: "
                        "`data: [...]`",
                    )
                )
        if found:
            raise UserError(found)


def _is_key(text: str) -> bool:
    """Return whether a key of `columns` may also be a number or a pattern."""
    return text.isdigit() or text == "*"


def same_columns(layout: TableLayout, form: TableForm) -> TableForm:
    """Return the form by which further files of one table are read: the columns of the first."""
    columns: tuple[Column, ...] = layout.columns
    label: tuple[Column, ...] = layout.labels
    if layout.has_header:
        columns = tuple(layout.names[column] for column in layout.columns)
        label = tuple(layout.names[column] for column in layout.labels)
    header: Literal["yes", "no"] = "yes" if layout.has_header else "no"
    return replace(form, header=header, data=columns, label=label, columns=None, forms=layout.forms)
