"""Conversion of values with source locations to YAML text that reads back as the same values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mxrun.base.errors import SourceLocation
from mxrun.config.marked import Scalar, SourceNode, located
from mxrun.config.scalar import resolve

_WIDTH = 96
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.-]*")
# YAML limits a key before a colon to 1024 characters with quotes; `? key` has no limit.
_MAX_KEY_LENGTH = 1000
_NOWHERE = SourceLocation("<none>", 1, 1)
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def dump(root: SourceNode, width: int = _WIDTH) -> str:
    """Return the YAML text of a config: sections in block style, short collections on one line.

    width: maximum length of the lines of these collections.
    """
    return "\n".join(_block(root, 0, width, top=True)) + "\n"


def flow(value: object) -> str:
    """Return plain values as YAML on one line: scalars, lists and mappings with text keys."""
    return _flow(located(value, _NOWHERE))


def _block(node: SourceNode, indent: int, width: int, *, top: bool = False) -> Iterator[str]:
    """Yield the lines of a collection in block style, each indented by `indent` spaces."""
    space = " " * indent
    if isinstance(node.value, Mapping):
        for key, part in node.value.items():
            yield from _entry(_head(key, space), part, indent, width, split=top)
    elif isinstance(node.value, tuple):
        for item in node.value:
            short = _flow(item)
            if not _has_parts(item) or indent + 2 + len(short) <= width:
                yield f"{space}- {_unbraced(item, short)}"
            else:
                first, *rest = _block(item, indent + 2, width)
                yield f"{space}- {first.lstrip()}"
                yield from rest


def _entry(head: str, part: SourceNode, indent: int, width: int, *, split: bool) -> Iterator[str]:
    short = _flow(part)
    if not _has_parts(part) or (not split and len(head) + 1 + len(short) <= width):
        yield f"{head} {short}"
        return
    yield head
    yield from _block(part, indent + 2, width)


def _has_parts(node: SourceNode) -> bool:
    return isinstance(node.value, (Mapping, tuple)) and len(node.value) > 0


def _unbraced(item: SourceNode, short: str) -> str:
    """Return the text of a list item without braces if it is a mapping of one key."""
    one_key = isinstance(item.value, Mapping) and len(item.value) == 1
    return short[1:-1] if one_key and not short.startswith("{? ") else short


def _flow(node: SourceNode) -> str:
    if isinstance(node.value, Mapping):
        parts = (f"{_flow_head(key)}: {_flow(part)}" for key, part in node.value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(node.value, tuple):
        return "[" + ", ".join(map(_flow, node.value)) + "]"
    return _scalar(node.value)


def _head(key: str, space: str) -> str:
    """Return a key in block style, with its colon."""
    text = _text(key)
    return f"{space}{text}:" if len(text) <= _MAX_KEY_LENGTH else f"{space}? {text}\n{space}:"


def _flow_head(key: str) -> str:
    """Return a key in flow style, without its colon."""
    text = _text(key)
    return text if len(text) <= _MAX_KEY_LENGTH else f"? {text} "


def _scalar(value: Scalar) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = repr(value)
        return text if text[-1].isdigit() else "." + text if text[0] != "-" else "-." + text[1:]
    return _text(value.replace("${", "$${"))


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and isinstance(resolve(value), str):
        return value
    return '"' + "".join(map(_escape, value)) + '"'


def _escape(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if " " <= character <= "~":
        return character
    return f"\\U{ord(character):08x}"
