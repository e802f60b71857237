"""YAML reader that builds marked values from parser events, so that no tag constructs objects.

Depth, size and number of values are limited, and aliases count at every use: hostile text is
refused in time and memory proportional to its length.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import yaml

from mxrun.base.description import describe_value
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.config.bundled import SAVED
from mxrun.config.foreign_files import foreign_file
from mxrun.config.marked import SourceNode
from mxrun.config.scalar import resolve

LARGEST_FILE = 1 << 20
DEEPEST = 64
MAX_VALUES = 50_000

# Exceptions that PyYAML's scanner raises besides its own: ValueError and OverflowError for escapes
# beyond Unicode and over-long versions, the others for directives and truncated text.
_SCANNER_ERRORS = (ValueError, OverflowError, KeyError, IndexError, AttributeError, TypeError)


def load_file(path: Path, shown: str, diagnostics: Diagnostics) -> SourceNode:
    """Read a YAML file into marked values; `shown` is its name in places.

    Problems that do not prevent further reading are added to `diagnostics`. Raises UserError for a
    file that cannot be read or is not YAML.
    """
    return load_text(_decode(_read(path, shown), shown), SourceLocation(shown, 1, 1), diagnostics)


def load_text(text: str, start: SourceLocation, diagnostics: Diagnostics) -> SourceNode:
    """Parse YAML text that begins at `start`; problems as in `load_file`."""
    return _Reader(text, start, diagnostics).read()


def _read(path: Path, shown: str) -> bytes:
    place = SourceLocation(shown, 1, 1)
    try:
        if not path.is_file():
            problem = "is a folder" if path.is_dir() else "there is no such file"
            is_run = (path / SAVED).is_file()
            hint = f"write {shown}/{SAVED}" if is_run else "check the path of the config"
            raise UserError(Diagnostic(problem, place, "a YAML file", hint=hint))
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(Diagnostic(f"cannot read the config: {reason}", place)) from error
    foreign = foreign_file(content, shown)
    if foreign is not None:
        raise UserError(foreign)
    if len(content) > LARGEST_FILE:
        raise UserError(
            Diagnostic("the config is too large", place, f"at most {LARGEST_FILE} bytes")
        )
    return content


def _decode(content: bytes, shown: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", "replace")
        problem = Diagnostic(
            "the file is not UTF-8 text",
            _advance(SourceLocation(shown, 1, 1), before),
            got=f"byte 0x{error.object[error.start]:02x}",
            hint="save the config as UTF-8",
        )
        raise UserError(problem) from error


def _advance(start: SourceLocation, text: str) -> SourceLocation:
    line = text.count("\n")
    column = len(text) - (text.rfind("\n") + 1)
    return SourceLocation(start.file, start.line + line, column + (1 if line else start.column))


def _event_source(text: str) -> Any:
    """Return PyYAML's parser, whose event methods have no type annotations."""
    return yaml.SafeLoader(text)


class _Reader:
    """Builder of marked values from the events of one document."""

    def __init__(self, text: str, start: SourceLocation, diagnostics: Diagnostics) -> None:
        self._text = text
        self._start = start
        self._diagnostics = diagnostics
        self._anchors: dict[str, tuple[SourceNode, int]] = {}
        self._values = 0

    def read(self) -> SourceNode:
        try:
            self._parser = _event_source(self._text)
            self._parser.get_event()
            if self._parser.check_event(yaml.StreamEndEvent):
                return SourceNode(None, self._start)
            self._parser.get_event()
            root = self._value(0)
            self._parser.get_event()
            if not self._parser.check_event(yaml.StreamEndEvent):
                self._stop("a second document begins here", self._parser.peek_event())
            return root
        except yaml.reader.ReaderError as error:
            place = _advance(self._start, self._text[: error.position])
            character = f"U+{ord(self._text[error.position]):04X}"
            raise UserError(
                Diagnostic("a character that YAML forbids", place, got=character)
            ) from error
        except yaml.MarkedYAMLError as error:
            raise UserError(self._syntax(error)) from error
        except _SCANNER_ERRORS as error:
            place = self._place(self._parser.get_mark())
            raise UserError(Diagnostic(f"not valid YAML: {error}", place)) from error

    def _place(self, mark: Any) -> SourceLocation:
        first = self._start.column if mark.line == 0 else 1
        return SourceLocation(self._start.file, self._start.line + mark.line, first + mark.column)

    def _stop(self, problem: str, event: yaml.Event, expected: str = "") -> NoReturn:
        raise UserError(Diagnostic(problem, self._place(event.start_mark), expected))

    def _syntax(self, error: yaml.MarkedYAMLError) -> Diagnostic:
        mark = error.problem_mark or error.context_mark
        place = self._place(mark) if mark else self._start
        problem = error.problem or error.context or "cannot be parsed"
        because = (error.context,) if error.context and error.problem else ()
        lines = self._text.splitlines()
        line = lines[mark.line] if mark and mark.line < len(lines) else ""
        if "'\\t'" in problem:
            return Diagnostic(
                "a tab where YAML allows only spaces", place, hint="indent with spaces"
            )
        hint = ""
        if "${" in line:
            hint = 'inside {...} and [...] write an expression in quotes: "${...}"'
        elif "mapping values are not allowed" in problem:
            hint = "indent the keys of one mapping alike; quote a text that contains ': '"
        elif "block end" in problem:
            hint = "indent the items of one mapping or list alike"
        return Diagnostic(f"not valid YAML: {problem}", place, hint=hint, chain=because)

    def _value(self, depth: int) -> SourceNode:
        event = self._parser.get_event()
        self._values += 1
        if self._values > MAX_VALUES:
            self._stop("the config holds too many values", event, expected=f"up to {MAX_VALUES}")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self._values
        self._refuse_tag(event)
        if isinstance(event, yaml.ScalarEvent):
            found = self._scalar(event)
        elif depth >= DEEPEST:
            self._stop("nested too deeply", event, expected=f"at most {DEEPEST} levels")
        elif isinstance(event, yaml.SequenceStartEvent):
            found = self._sequence(event, depth)
        else:
            found = self._mapping(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (found, self._values - before + 1)
        return found

    def _alias(self, event: yaml.AliasEvent) -> SourceNode:
        if event.anchor not in self._anchors:
            self._stop(f"the alias refers to no earlier anchor &{event.anchor}", event)
        found, count = self._anchors[event.anchor]
        self._values += count - 1
        if self._values > MAX_VALUES:
            self._stop("aliases expand to too many values", event, expected=f"up to {MAX_VALUES}")
        return found

    def _refuse_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None:
            self._diagnostics.add(
                Diagnostic(
                    f"the tag {event.tag[:60]!r} is not supported",
                    self._place(event.start_mark),
                    "plain YAML values",
                    hint="remove the tag",
                )
            )

    def _scalar(self, event: yaml.ScalarEvent) -> SourceNode:
        place = self._place(event.start_mark)
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            self._stop("half of a surrogate pair is not a character", event)
        if event.style is not None or event.tag is not None:
            return SourceNode(event.value, place)
        try:
            return SourceNode(resolve(event.value), place)
        except ValueError as error:
            self._diagnostics.add(Diagnostic(f"too long: {error}", place))
            return SourceNode(0, place)

    def _sequence(self, event: yaml.Event, depth: int) -> SourceNode:
        items = []
        while not self._parser.check_event(yaml.SequenceEndEvent):
            items.append(self._value(depth + 1))
        self._parser.get_event()
        return SourceNode(tuple(items), self._place(event.start_mark))

    def _mapping(self, event: yaml.Event, depth: int) -> SourceNode:
        entries: dict[str, SourceNode] = {}
        while not self._parser.check_event(yaml.MappingEndEvent):
            key_place = self._place(self._parser.peek_event().start_mark)
            key = self._value(depth + 1)
            value = replace(self._value(depth + 1), key_place=key_place)
            if self._accepts(key, key_place, entries):
                entries[str(key.value)] = value
        self._parser.get_event()
        return SourceNode(entries, self._place(event.start_mark))

    def _accepts(
        self, key: SourceNode, place: SourceLocation, entries: dict[str, SourceNode]
    ) -> bool:
        if not isinstance(key.value, str):
            hint = "write it in quotes" if not isinstance(key.value, (tuple, dict)) else ""
            self._diagnostics.add(
                Diagnostic(
                    "a key must be text", place, "text", describe_value(key.value), hint=hint
                )
            )
            return False
        if key.value == "<<":
            self._diagnostics.add(
                Diagnostic("merge keys are not supported", place, hint="use extends: or blocks:")
            )
            return False
        if key.value in entries:
            first = entries[key.value].key_place
            self._diagnostics.add(
                Diagnostic(f"the key {key.value!r} is given twice", place, hint=f"first at {first}")
            )
            return False
        return True
