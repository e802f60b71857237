"""Values of a JSON file: one a line, or the elements of one array."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from mxrun.base.errors import Diagnostic, UserError

ENDINGS = (".jsonl", ".ndjson", ".json")
"""Endings of the names of such files."""

_BLANKS = re.compile(r"[ \t\r\n]*")
_LINE_END = re.compile(r"\r\n|\r|\n")
_MAX_SHOWN = 80


class JsonValue(NamedTuple):
    """Value with its line in the file, from 1, and its number: among lines or elements, from 0."""

    line: int
    number: int
    value: Any
    text: str


def is_array(content: str) -> bool:
    """Return whether a file is one array, and not a value a line."""
    return content.startswith("[", _after_blanks(content, 0))


def json_values(
    content: str, place: Callable[[int], str], problem: str, expected: str
) -> Iterator[JsonValue]:
    """Yield the values of a file, one after the other.

    place: returns that of a line, for messages. Raises UserError with `problem` and what is
    `expected` for the first one that is not JSON.
    """
    read = _elements if is_array(content) else _lines

    def refuse(line: int, got: str) -> NoReturn:
        where = f"{place(line)}: {problem}"
        raise UserError(Diagnostic(where, None, expected, got[:_MAX_SHOWN]))

    yield from read(content, refuse)


_Refuse = Callable[[int, str], NoReturn]


def _lines(content: str, refuse: _Refuse) -> Iterator[JsonValue]:
    for line, text in enumerate(_LINE_END.split(content), 1):
        if not text.strip():
            continue
        try:
            value = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError):
            refuse(line, text)
        yield JsonValue(line, line - 1, value, text)


def _elements(content: str, refuse: _Refuse) -> Iterator[JsonValue]:
    decoder = json.JSONDecoder(parse_constant=_no_number)
    at, line, number = _after_blanks(content, content.index("[") + 1), 1, 0
    counted = 0
    is_open = content[at : at + 1] != "]"
    while is_open:
        line += len(_LINE_END.findall(content, counted, at))
        counted = at
        try:
            value, end = decoder.raw_decode(content, at)
        except (ValueError, RecursionError):
            refuse(line, content[at : at + _MAX_SHOWN])
        yield JsonValue(line, number, value, content[at:end])
        number += 1
        at = _after_blanks(content, end)
        is_open = content[at : at + 1] == ","
        at = _after_blanks(content, at + 1) if is_open else at
    if content[at : at + 1] != "]" or _after_blanks(content, at + 1) < len(content):
        refuse(line, content[at : at + _MAX_SHOWN] or "the end of the file within the array")


def _after_blanks(content: str, at: int) -> int:
    found = _BLANKS.match(content, at)
    assert found is not None
    return found.end()


def _no_number(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(name)
