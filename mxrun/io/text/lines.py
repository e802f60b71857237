"""Texts and their labels in files: a line each, rows of a table, or lines of JSON."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.locks import new_lock
from mxrun.base.near_names import listed, nearest
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.encodings import DECLARE, decoded
from mxrun.io.files import MAXIMUM_BYTES, check_memory
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.tables.cells import detected_delimiter
from mxrun.io.text.json_values import ENDINGS, is_array, json_values

LINES, TABLE, JSON_LINES = "lines", "csv", "jsonl"
Kind = Literal["lines", "csv", "jsonl"]
Column = int | str

_ENDINGS: dict[str, Kind] = {".csv": "csv", ".tsv": "csv", **dict.fromkeys(ENDINGS, "jsonl")}
_FIRST_ROW = re.compile(r"\s*([^\r\n]*)")
_TAB = "\t"
# Characters that have a meaning of their own in a table.
_NO_DELIMITERS = '"\r\n'
# Names of the columns, of which the first that is there is read.
TEXT_NAMES = ("text", "sentence", "content", "review", "message", "comment")
LABEL_NAMES = ("label", "class", "category", "target", "sentiment")
# The csv module refuses longer fields. Its limit is one for the process, so that a thread that
# changes it holds the lock until it is as before.
_MAX_FIELD = 1 << 27
_field_limit = new_lock()


@dataclass(frozen=True)
class LineForm:
    """Form of the files.

    kind: None for that of the file's ending. delimiter: between label and text of a line, or
    between the columns of a table; empty for a tab, or for that of a table's first row. text,
    label: columns by name or number, or keys; None for the usual ones. labelled: whether there are
    labels. encoding: the one declared; empty for UTF-8.
    """

    kind: Kind | None = None
    delimiter: str = ""
    text: Column | None = None
    label: Column | None = None
    labelled: bool = True
    encoding: str = ""

    def kind_of(self, path: Path) -> Kind:
        """Return the form of a file."""
        return self.kind or _ENDINGS.get(path.suffix.lower(), "lines")

    def without_labels(self) -> LineForm:
        """Return the form of files that are like these, but may lack the labels."""
        # A name tells that the first row holds names; a number for the text does not.
        names_columns = isinstance(self.text, int) and isinstance(self.label, str)
        return replace(self, label=self.label if names_columns else None, labelled=False)


@dataclass(frozen=True)
class LabelledTexts:
    """Texts of files in their order, with a label for each, or none at all.

    places: the file and the line of each text; numbers: that of its line in its file, from 0, or of
    its row or element in a table or an array.
    """

    texts: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    places: list[tuple[Path, int]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def locate(self, record: int) -> RecordLocation:
        """Return the place of a text: its file and line."""
        path, line = self.places[record]
        return RecordLocation(f"{path}:{line}")

    def add(self, content: bytes, path: Path, form: LineForm) -> None:
        """Add the texts of a file with this content.

        Raises UserError naming the line without a text or a label.
        """
        before = len(self.texts)
        text = decoded(content, path, form.encoding, DECLARE)
        kind = form.kind_of(path)
        are_lines = kind == LINES or (kind == JSON_LINES and not is_array(text))
        read = {LINES: _lines, TABLE: _table, JSON_LINES: _json_lines}[kind]
        for line, label, words in read(text, path, form):
            if form.labelled and not label:
                _refuse(path, line, "the label is missing", "a label and a text", words)
            self.numbers.append(line - 1 if are_lines else len(self.texts) - before)
            self.texts.append(words)
            self.places.append((path, line))
            if form.labelled:
                self.labels.append(label)
        if len(self.texts) == before:
            raise UserError(Diagnostic(f"{path}: holds no texts", None, "a text a line"))


def read_texts(paths: Sequence[Path], form: LineForm) -> LabelledTexts:
    """Read files; raises UserError naming the line without a text or a label."""
    found = LabelledTexts()
    for path in paths:
        found.add(file_content(path), path, form)
    return found


def file_content(path: Path) -> bytes:
    """Return the bytes of a file; raises UserError for a device or a pipe, which have no size."""
    file = ByteFile(path)
    if file.size > MAXIMUM_BYTES:
        expected = f"at most {MAXIMUM_BYTES:,} bytes"
        problem = f"{path}: the file is too large to hold in memory"
        raise UserError(Diagnostic(problem, None, expected, f"{file.size:,} bytes"))
    # Twice, for the decoded text.
    check_memory(path, 2 * file.size)
    content = file.read(0, file.size)
    file.close()
    return content


_Rows = Iterator[tuple[int, str, str]]


def _lines_of(content: str) -> list[str]:
    """Return the lines of a text, which end with a LF, a CRLF or a CR, without these."""
    return content.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _lines(content: str, path: Path, form: LineForm) -> _Rows:
    """Yield line, label and text of the lines that are not empty."""
    delimiter = form.delimiter or _TAB
    for line, text in enumerate(_lines_of(content), 1):
        if not text.strip():
            continue
        label, found, words = text.partition(delimiter)
        if not form.labelled:
            yield line, "", text
        elif not found:
            expected = f"a label, {delimiter!r} and a text"
            hint = "write label: null for texts without labels, or the delimiter that stands there"
            _refuse(path, line, "the line is not divided", expected, text, hint=hint)
        else:
            yield line, label.strip(), words.strip()


def _table(content: str, path: Path, form: LineForm) -> _Rows:
    """Yield line, label and text of the rows of a table."""
    first = _FIRST_ROW.match(content)
    assert first is not None
    delimiter = form.delimiter or detected_delimiter(first[1].encode()).decode()
    if len(delimiter) != 1 or delimiter in _NO_DELIMITERS:
        problem = f"{path}: the columns of a table cannot be divided by {delimiter!r}"
        expected = "one character, neither a quotation mark nor a line end"
        hint = "write form: lines for lines of a label, the delimiter and a text"
        raise UserError(Diagnostic(problem, None, expected, f"delimiter: {delimiter!r}", hint=hint))
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)
    try:
        with _long_fields():
            rows = [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        problem = f"{path}:{reader.line_num}: not a row of a table: {error}"
        raise UserError(Diagnostic(problem)) from error
    if not rows:
        return
    text, label, has_header = _columns(rows[0][1], path, form)
    for line, cells in rows[has_header:]:
        if len(cells) <= max(text, label):
            expected = f"{max(text, label) + 1} columns or more"
            _refuse(path, line, "the row has too few columns", expected, str(len(cells)))
        yield line, cells[label].strip() if form.labelled else "", cells[text].strip()


@contextmanager
def _long_fields() -> Iterator[None]:
    """Context manager in which the csv module reads fields of up to _MAX_FIELD characters."""
    with _field_limit:
        before = csv.field_size_limit(_MAX_FIELD)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _columns(first: Sequence[str], path: Path, form: LineForm) -> tuple[int, int, bool]:
    """Return the numbers of the columns of text and label, and whether the first row names them."""
    names = [cell.strip().lower() for cell in first]
    usual_text = next((name for name in TEXT_NAMES if name in names), None)
    usual_label = next((name for name in LABEL_NAMES if name in names), None)
    given = (form.text, form.label)
    has_header = any(isinstance(each, str) for each in given) or (
        given == (None, None)
        and usual_text is not None
        and (usual_label is not None or not form.labelled)
    )
    if has_header:
        text = form.text if form.text is not None else usual_text
        label = form.label if form.label is not None else usual_label
        text = _place(text, names, path, "text", TEXT_NAMES)
        return text, _place(label, names, path, "label", LABEL_NAMES) if form.labelled else 0, True
    if not form.labelled:
        return (form.text if isinstance(form.text, int) else 0), 0, False
    label = form.label if isinstance(form.label, int) else 0
    text = form.text if isinstance(form.text, int) else int(label == 0)
    return text, label, False


def _place(
    column: Column | None, names: Sequence[str], path: Path, role: str, usual: Sequence[str]
) -> int:
    """Return the number of a column of a table with a header."""
    if isinstance(column, int):
        return column
    if column is not None and column.lower() in names:
        return names.index(column.lower())
    problem = f"{path}:1: the table has no column for the {role}"
    expected = column or f"a column named {listed(usual)}"
    hint = nearest(column or role, names) or f"name it: {role}: COLUMN"
    raise UserError(Diagnostic(problem, None, expected, listed(names), hint=hint))


def _json_lines(content: str, path: Path, form: LineForm) -> _Rows:
    """Yield line, label and text of JSON objects, one a line or in an array."""
    about = ("not a JSON object", '{"text": ..., "label": ...}, one a line or in one array')
    for line, _, entry, text in json_values(content, lambda line: f"{path}:{line}", *about):
        if not isinstance(entry, dict):
            _refuse(path, line, *about, text)
        words = _entry(entry, form.text, TEXT_NAMES, path, line, "text")
        if not isinstance(words, str):
            _refuse(path, line, "the text is no string", "a string", str(words))
        _check_is_text(path, line, words)
        label = ""
        if form.labelled:
            value = _entry(entry, form.label, LABEL_NAMES, path, line, "label")
            if isinstance(value, (dict, list)) or value is None:
                _refuse(path, line, "the label is no class", "a string or a number", str(value))
            label = str(value).lower() if isinstance(value, bool) else str(value)
            _check_is_text(path, line, label)
        yield line, label.strip(), words.strip()


def _check_is_text(path: Path, line: int, text: str) -> None:
    """Refuse half of a surrogate pair, which an escape can write and UTF-8 cannot hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        got = repr(text[error.start : error.end])
        _refuse(path, line, "half of a surrogate pair", "text in UTF-8", got)


def _entry(
    entry: dict[str, Any],
    key: Column | None,
    usual: Sequence[str],
    path: Path,
    line: int,
    role: str,
) -> Any:
    """Return the value of a key, by default of the first usual one."""
    keys = usual if key is None else (str(key),)
    found = next((each for each in keys if each in entry), None)
    if found is None:
        hint = f"name it: {role}: KEY"
        _refuse(
            path, line, f"the object has no {role}", listed(keys), listed(list(entry)), hint=hint
        )
    return entry[found]


def _refuse(
    path: Path, line: int, problem: str, expected: str, got: str, hint: str = ""
) -> NoReturn:
    raise UserError(Diagnostic(f"{path}:{line}: {problem}", None, expected, got[:80], hint=hint))
