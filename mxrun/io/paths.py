"""Files of a data set: one path, a pattern, or a list of these."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.io.files import user_path

PathText = Annotated[str, StringConstraints(min_length=1)]
Paths = PathText | tuple[PathText, ...]
"""Type of a data set's option: a path, a pattern such as `train-*.rec`, or a list of these."""

PATHS_DOC = (
    "A pattern such as train-*.{suffix} or train-{{00..15}}.{suffix} gives several files, sorted "
    "by name, a list several in its order. A relative path starts at the config's folder."
)
"""End of the description of a `Paths` option; its `suffix` is filled in."""

# Range of numbers with leading zeros, as WebDataset writes them: {000..127}.
_RANGE = re.compile(r"\{(\d{1,9})\.\.(\d{1,9})\}", re.ASCII)
_MAX_FILES = 1 << 20


def paths_of(paths: str | Sequence[str]) -> tuple[str, ...]:
    """Return the paths and patterns as a tuple."""
    return (paths,) if isinstance(paths, str) else tuple(paths)


def is_pattern(text: str) -> bool:
    """Return whether a path that is no file is a pattern."""
    return glob.has_magic(text) or _RANGE.search(text) is not None


def find_files(paths: str | Sequence[str]) -> tuple[Path, ...]:
    """Return the files of paths and patterns: sorted by name for a pattern, else as given.

    A path to an existing file is no pattern, whatever its characters. Raises UserError for a
    pattern without files, a missing file, an empty list, and for a file that is found twice, since
    its records would count twice.
    """
    found: list[Path] = []
    origins: dict[str, str] = {}
    for text in paths_of(paths):
        for path in _files(text):
            real = os.path.realpath(path)
            if real in origins:
                problem = f"{path}: the file is listed twice"
                got = f"{origins[real]} and {text}" if origins[real] != text else f"{text} twice"
                raise UserError(Diagnostic(problem, None, "each file once", got))
            origins[real] = text
            found.append(path)
    if not found:
        raise UserError(Diagnostic("`path` is an empty list", None, "at least one file"))
    return tuple(found)


def _files(text: str) -> Iterator[Path]:
    """Yield the files of a path or a pattern."""
    path = user_path(text)
    if _exists(path):
        yield path
        return
    # One after another: several ranges have too many texts for a list.
    for each in _expanded(str(path)):
        yield from _matches(each, text)


def _matches(pattern: str, text: str) -> list[Path]:
    """Return the files that match a pattern, sorted by name; raises UserError if none do."""
    if not glob.has_magic(pattern):
        if not _exists(Path(pattern)):
            raise _missing(Path(pattern), text)
        return [Path(pattern)]
    try:
        found = sorted(each for each in glob.glob(pattern, recursive=True) if os.path.isfile(each))
    except (OSError, ValueError, re.error) as error:
        raise UserError(Diagnostic(f"{text}: not a pattern of files: {error}")) from error
    if not found:
        problem = f"no file matches the pattern {text}"
        hint = "* stands for any characters but /, ** for folders, {00..15} for numbers"
        raise UserError(Diagnostic(problem, None, "at least one file", hint=hint))
    return [Path(each) for each in found]


def _expanded(text: str) -> Iterator[str]:
    """Yield the text with each range of numbers replaced by its numbers in turn."""
    found = _RANGE.search(text)
    if found is None:
        yield text
        return
    first, last = int(found[1]), int(found[2])
    if not first <= last < first + _MAX_FILES:
        expected = f"{{first..last}} with first <= last, at most {_MAX_FILES:,} files"
        raise UserError(Diagnostic(f"{text}: wrong range of numbers", None, expected, found[0]))
    for number in range(first, last + 1):
        digits = str(number).zfill(len(found[1]))
        yield from _expanded(f"{text[: found.start()]}{digits}{text[found.end() :]}")


def _missing(path: Path, text: str) -> UserError:
    """Return the error for a file that is not there; text: the path or pattern as written."""
    problem = f"{path}: there is no such file"
    beside = os.listdir(path.parent) if _is_folder(path.parent) else []
    got = "" if str(user_path(text)) == str(path) else text
    return UserError(Diagnostic(problem, None, got=got, hint=nearest(path.name, sorted(beside))))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
