"""Names of the classes of a file whose labels are numbers, in a text file beside it.

RecordIO files have no place for them. The file `train.classes` beside `train.rec` has the name of
class 0 in its first line, that of class 1 in its second, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.dataset.fields import Field
from mxrun.io.encodings import decoded
from mxrun.io.files import read_all_bytes

SUFFIX = ".classes"


def encode_class_names(names: Sequence[str]) -> bytes:
    """Return the content of the file.

    Raises UserError for a name that is no line, or occurs twice.
    """
    for name in names:
        if not name.strip() or name != name.strip() or len(name.splitlines()) > 1:
            problem = f"the class name {name!r} cannot be written as a line"
            raise UserError(Diagnostic(problem, None, "a name without line ends and outer blanks"))
    _check_distinct(names, "the classes")
    return "".join(f"{name}\n" for name in names).encode()


def read_class_names(files: Sequence[Path]) -> tuple[str, ...]:
    """Return the names beside the files, which must all have the same; empty if none has any."""
    found: dict[Path, tuple[str, ...]] = {}
    for file in files:
        path = file.with_suffix(SUFFIX)
        if path.is_file():
            text = decoded(read_all_bytes(path), path)
            found[path] = tuple(line.strip() for line in text.rstrip().splitlines())
            if not all(found[path]):
                # Leaving it out would give other names to the classes after it.
                problem = f"{path}:{found[path].index('') + 1}: the line is empty"
                raise UserError(Diagnostic(problem, None, "the name of a class in each line"))
            _check_distinct(found[path], str(path))
    if not found:
        return ()
    first, names = next(iter(found.items()))
    for path, others in found.items():
        if others != names:
            problem = f"{path}: the classes are not those of {first}"
            raise UserError(Diagnostic(problem, None, "the same names for all files"))
    if len(found) < len(files):
        lacking = next(file for file in files if file.with_suffix(SUFFIX) not in found)
        problem = f"{lacking}: has no names of classes beside it, but {first} is there"
        raise UserError(Diagnostic(problem, None, lacking.with_suffix(SUFFIX).name))
    return names


def check_class_numbers(column: Field, names: Sequence[str], where: str) -> None:
    """Raise UserError if the class numbers of a column, int32, have no name."""
    wrong = (column.records < 0) | (column.records >= len(names))
    if wrong.any():
        record = int(np.argmax(wrong))
        problem = f"{where}: the label of record {record} is none of the {len(names)} classes"
        expected, got = f"0 to {len(names) - 1}", str(column.records[record])
        raise UserError(Diagnostic(problem, None, expected, got))


def _check_distinct(names: Sequence[str], where: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        problem = f"{where}: the class name {twice!r} occurs twice"
        raise UserError(Diagnostic(problem, None, "a name of its own for each class"))
