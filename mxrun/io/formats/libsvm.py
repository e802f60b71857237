"""Reader of LIBSVM's text format: a record a line, `label index:value index:value ...`.

Numbers that are not written are zero. What follows a # is a comment. Source of the format:
LIBSVM's README; MXNet's LibSVMIter counts the indices from 0, LIBSVM from 1.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.convert import first_unrepresentable, valid_range
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.encodings import decoded
from mxrun.io.files import check_memory, read_all_bytes

_NUMBER = rb"[-+]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,4})?"
_LINE = re.compile(
    rb"\s*(?P<label>[^\s:#]+)(?P<pairs>(?:\s+[0-9]{1,9}:" + _NUMBER + rb")*)\s*", re.ASCII
)
_PAIR = re.compile(rb"[0-9]{1,9}:" + _NUMBER, re.ASCII)
_QUERY = b"qid:"


@dataclass(frozen=True, eq=False)
class SparseRecords:
    """Records of files, in their order, with only the numbers that are written.

    labels: of each record, as written. rows, columns, values: int64 [numbers], int64 [numbers] from
    0, and float64 [numbers]. places: of each record, its file and line. notes: on the files.
    """

    labels: Sequence[str]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    places: Sequence[tuple[Path, int]]
    notes: tuple[str, ...]

    @property
    def width(self) -> int:
        """Number of columns up to the last one that is written."""
        return int(self.columns.max()) + 1 if len(self.columns) else 0

    def locate(self, record: int) -> RecordLocation:
        """Return the place of a record; its number is that of its line, from 1."""
        path, line = self.places[record]
        return RecordLocation(f"{path}:{line}")

    def dense(self, width: int) -> NDArray[np.float32]:
        """Return float32 [records, width]; raises UserError for a column beyond, or no memory."""
        if self.width > width:
            record = int(self.rows[np.argmax(self.columns >= width)])
            problem = f"{self.locate(record)}: the index exceeds the network's input"
            got = f"{self.width} columns"
            raise UserError(Diagnostic(problem, None, f"at most {width} columns", got))
        at = first_unrepresentable(self.values, "float32")
        if at is not None:
            problem = f"{self.locate(int(self.rows[at]))}: the number cannot be converted"
            raise UserError(
                Diagnostic(problem, None, valid_range("float32"), f"{self.values[at]:g}")
            )
        check_memory(self.places[0][0], len(self.labels) * width * 4)
        records = np.zeros((len(self.labels), width), np.float32)
        records[self.rows, self.columns] = self.values
        return records


@dataclass
class _WrittenNumbers:
    """Numbers while files are read."""

    labels: list[str] = field(default_factory=list)
    counts: array[int] = field(default_factory=lambda: array("q"))
    columns: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    places: list[tuple[Path, int]] = field(default_factory=list)


def read_libsvm(paths: Sequence[Path], first_index: int) -> SparseRecords:
    """Read files; `first_index`, 0 or 1, is the index of the first column.

    Raises UserError naming the line that is no record, or whose indices do not ascend.
    """
    found = _WrittenNumbers()
    notes: list[str] = []
    for path in paths:
        before = len(found.labels)
        content = decoded(read_all_bytes(path), path).encode()
        for number, text in enumerate(content.split(b"\n"), 1):
            _append(found, path, number, text.removesuffix(b"\r"), first_index)
        if len(found.labels) == before:
            raise UserError(Diagnostic(f"{path}: holds no records", None, "label index:value ..."))
        if not content.endswith(b"\n"):
            notes.append(f"{path}:{number}: the last line has no end: the file may be cut there")
    counts = np.array(found.counts, np.int64)
    return SparseRecords(
        found.labels,
        np.repeat(np.arange(len(counts)), counts),
        np.array(found.columns, np.int64),
        np.array(found.values, np.float64),
        found.places,
        tuple(notes),
    )


def _append(found: _WrittenNumbers, path: Path, line: int, text: bytes, first: int) -> None:
    """Append the record of a line, if it has one."""
    record, _, comment = text.partition(b"#")
    is_record = bool(comment.strip()) and _LINE.fullmatch(b"0" + comment) is not None
    # A comment that would be a record behind a label is refused: the label may be damaged.
    if not record.strip() and not is_record:
        return
    matched = _LINE.fullmatch(record)
    if matched is None:
        _refuse(path, line, text)
    parts = matched["pairs"].replace(b":", b" ").split()
    indices = list(map(int, parts[::2]))
    if any(after <= before for before, after in pairwise(indices)):
        problem = f"{path}:{line}: the indices do not ascend"
        raise UserError(Diagnostic(problem, None, "each index once, in ascending order"))
    if indices and indices[0] < first:
        problem = f"{path}:{line}: the index 0 is below the first one"
        hint = "write first_index: 0 for files that count from 0, as MXNet's"
        raise UserError(Diagnostic(problem, None, f"indices from {first}", "0", hint=hint))
    found.labels.append(matched["label"].decode())
    found.counts.append(len(indices))
    found.columns.extend(index - first for index in indices)
    found.values.extend(map(float, parts[1::2]))
    found.places.append((path, line))


def _refuse(path: Path, line: int, text: bytes) -> NoReturn:
    """Raise UserError about the first part of a line that is wrong."""
    _, *pairs = text.split()
    wrong = next((pair for pair in pairs if _PAIR.fullmatch(pair) is None), text.strip())
    problem = f"{path}:{line}: not a record of LIBSVM's format"
    hint = ""
    if wrong.startswith(_QUERY):
        problem = f"{path}:{line}: groups of records for ranking (qid) are not supported"
        hint = "remove qid:... from the lines"
    got = wrong[:80].decode("utf-8", "replace")
    raise UserError(Diagnostic(problem, None, "label index:value ...", got, hint=hint))
