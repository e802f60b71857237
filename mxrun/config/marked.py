"""YAML values with the source locations of every key and part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mxrun.base.errors import SourceLocation

Scalar: TypeAlias = bool | int | float | str | None
Path: TypeAlias = tuple[str | int, ...]

REQUIRED = "???"
"""Prefix of a placeholder for a value that the user must give; its description follows."""


@dataclass(frozen=True)
class SourceNode:
    """Scalar, list or mapping, with the places of the value and of the key that holds it.

    Equality compares the values and ignores their places.
    """

    value: Scalar | tuple[SourceNode, ...] | Mapping[str, SourceNode]
    place: SourceLocation = field(compare=False)
    key_place: SourceLocation | None = field(default=None, compare=False)

    def plain(self) -> Any:
        """Return the value without places: scalars, tuples and dictionaries."""
        if isinstance(self.value, Mapping):
            return {key: part.plain() for key, part in self.value.items()}
        if isinstance(self.value, tuple):
            return tuple(part.plain() for part in self.value)
        return self.value

    def find(self, *path: str | int) -> SourceNode:
        """Return the value at `path`, or the deepest existing one on the way to it."""
        found = self
        for step in path:
            value = found.value
            if isinstance(value, Mapping) and isinstance(step, str):
                inner = value.get(step)
            elif isinstance(value, tuple) and isinstance(step, int):
                inner = value[step] if 0 <= step < len(value) else None
            else:
                inner = None
            if inner is None:
                break
            found = inner
        return found

    @property
    def start(self) -> SourceLocation:
        """Place of the key that holds this value; in a list, of the value itself."""
        return self.key_place or self.place

    @property
    def is_placeholder(self) -> bool:
        """True if the value is a placeholder that the user must replace."""
        return isinstance(self.value, str) and self.value.startswith(REQUIRED)


def located(value: Any, place: SourceLocation) -> SourceNode:
    """Return a plain value as a tree in which every part has the same place."""
    if isinstance(value, Mapping):
        return SourceNode({str(key): located(part, place) for key, part in value.items()}, place)
    if isinstance(value, (list, tuple)):
        return SourceNode(tuple(located(part, place) for part in value), place)
    return SourceNode(value, place)


def describe(value: object) -> str:
    """Return a description of a value for messages: content and type."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (true or false)"
    if isinstance(value, int):
        return f"{value} (an integer)"
    if isinstance(value, float):
        return f"{value} (a number)"
    if isinstance(value, str):
        text = value if len(value) <= 60 else value[:57] + "..."
        return f"{text!r} (text)"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list"


def dotted(path: Path) -> str:
    """Return a path in command-line form: `network.layers[0].Convolution.num_filter`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            word = f'"{step}"' if any(mark in step for mark in '.[]="') else step
            text += f".{word}" if text else word
    return text
