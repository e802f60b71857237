"""Lists of images in text files: one image a line, its file and its class."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.io.encodings import decoded
from mxrun.io.files import is_hidden, read_all_bytes, unreadable_error
from mxrun.io.formats.labels import LabelValue
from mxrun.io.images.kinds import SUFFIXES

# Names of the two columns in a header, in lower case.
_FILES = ("file", "filename", "file_name", "path", "image")
_LABELS = ("label", "class", "class_name", "kind", "category")
_DELIMITERS = ("\t", ";", ",")
_QUOTED = re.compile(r'"[^"]*"')
# Class number as MXNet's lists write it: 1.000000.
_WHOLE = re.compile(r"^(\d+)\.0+$", re.ASCII)
# Heading of a column: a word that is no path.
_HEADING = re.compile(r"[^\W\d][\w -]*")
# Bytes read to recognise a list.
_HEAD = 1 << 16


@dataclass(frozen=True)
class ImageList:
    """Images of a list, in its order, and the label of each one: a text as written, or numbers.

    note: a remark on rows that are left out, empty without any.
    """

    files: tuple[Path, ...]
    labels: tuple[LabelValue, ...]
    note: str = ""


def is_image_list(path: Path) -> bool:
    """Return whether one of the first two lines of a text file names an image.

    Raises UserError if the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error
    return names_images(head)


def names_images(content: bytes) -> bool:
    """Return whether one of the first two lines of a text names an image."""
    try:
        rows = _rows(content[:_HEAD].decode(errors="replace"))[:2]
    except csv.Error:
        return False
    return any(_is_image(cell) for _, cells in rows for cell in cells)


def read_image_list(path: Path, root: Path | None = None) -> ImageList:
    """Read rows of a file's name and a class's name, separated by tabs, semicolons or commas.

    A header may name the columns, in any order among others: file and label. Otherwise they are the
    first two columns, below a header or not. Lists of MXNet have a number, one label or several,
    and the file; numbers such as 1.000000 are returned as 1. Names of files are relative to the
    folder `root`, by default that of the list. Rows of files that are hidden below the folder that
    all files are in are left out. Raises UserError naming the line of a row that is incomplete or
    whose file is missing.
    """
    text = decoded(read_all_bytes(path), path)
    try:
        rows = _rows(text)
    except csv.Error as error:
        raise UserError(Diagnostic(f"{path}: not a list of images: {error}")) from error
    if not rows:
        raise UserError(Diagnostic(f"{path}: the list is empty", None, "rows of file,label"))
    columns, has_header = _columns(rows[0][1])
    folder = path.parent if root is None else root
    files: list[Path] = []
    labels: list[LabelValue] = []
    for line, cells in rows[has_header:]:
        file, label = columns.parts(cells)
        if any("\n" in cell or "\r" in cell for cell in cells):
            problem = f"{path}:{line}: a cell in quotes ends after the line that it begins in"
            hint = "a quote may be missing; write a row in one line"
            raise UserError(Diagnostic(problem, None, "file,label", repr(cells)[:80], hint=hint))
        if not file or not label or not all(label):
            problem = f"{path}:{line}: a row needs a file and a label"
            got, hint = ",".join(cells)[:80], "images without labels: mxrun infer RUN FILE"
            raise UserError(Diagnostic(problem, None, "file,label", got, hint=hint))
        image = folder / file
        if not os.path.isfile(image):
            hint = f"names of files are relative to {folder}; `root` names another folder"
            raise UserError(Diagnostic(f"{path}:{line}: {image} is not there", hint=hint))
        files.append(image)
        labels.append(_label(label, f"{path}:{line}"))
    if not files:
        raise UserError(Diagnostic(f"{path}: the list has a header alone", None, "rows of images"))
    hidden = _hidden(files)
    if not hidden:
        return ImageList(tuple(files), tuple(labels))
    names = listed([str(files[row]) for row in sorted(hidden)])
    visible = [row for row in range(len(files)) if row not in hidden]
    if not visible:
        problem = f"{path}: all files of the list are hidden"
        raise UserError(Diagnostic(problem, None, "images that are not hidden", names))
    return ImageList(
        tuple(files[row] for row in visible),
        tuple(labels[row] for row in visible),
        f"{path}: hidden files and folders are left out: {names}",
    )


def _hidden(files: Sequence[Path]) -> set[int]:
    """Return the rows of the files that are hidden below the folder that all of them are in."""
    paths = [os.path.abspath(file) for file in files]
    common = os.path.commonpath([os.path.dirname(path) for path in paths])
    return {row for row, path in enumerate(paths) if is_hidden(path[len(common) :])}


def _label(cells: Sequence[str], where: str) -> LabelValue:
    """Return one label as a text, several as numbers."""
    if len(cells) == 1:
        return _WHOLE.sub(r"\1", cells[0])
    try:
        return tuple(map(float, cells))
    except ValueError:
        problem = f"{where}: several labels of an image are numbers"
        raise UserError(Diagnostic(problem, None, "numbers", ", ".join(cells)[:80])) from None


def _rows(text: str) -> list[tuple[int, list[str]]]:
    """Return the line and the cells of each row that is not empty."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    unquoted = _QUOTED.sub("", first)
    delimiter = next((each for each in _DELIMITERS if each in unquoted), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return [
        (reader.line_num, [cell.strip() for cell in cells])
        for cells in reader
        if any(map(str.strip, cells))
    ]


@dataclass(frozen=True)
class _ListColumns:
    """Columns of a list: the file's, and the label's, or all between the first and the file's."""

    file: int
    label: int | None

    def parts(self, cells: Sequence[str]) -> tuple[str, Sequence[str]]:
        """Return the file and the labels of a row; empty ones that are missing."""
        if self.label is None:
            return cells[-1], cells[1:-1]
        if len(cells) <= max(self.file, self.label):
            return "", ()
        return cells[self.file], (cells[self.label],)


def _columns(first: Sequence[str]) -> tuple[_ListColumns, bool]:
    """Return the columns of files and labels, and whether the first row is a header."""
    names = [cell.lower() for cell in first]
    file = next((names.index(name) for name in _FILES if name in names), None)
    label = next((names.index(name) for name in _LABELS if name in names), None)
    if file is not None and label is not None:
        return _ListColumns(file, label), True
    if len(first) >= 3 and _is_image(first[-1]) and not _is_image(first[0]):
        return _ListColumns(len(first) - 1, None), False
    return _ListColumns(0, 1), _HEADING.fullmatch(first[0]) is not None


def _is_image(cell: str) -> bool:
    return cell.lower().endswith(SUFFIXES)
