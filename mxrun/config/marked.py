"""YAML values with the source locations of every key and part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import SourceLocation

Scalar: TypeAlias = bool | int | float | str | None

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


def entries_of(node: SourceNode | None) -> Mapping[str, SourceNode]:
    """Return the entries of a mapping; none for any other value."""
    return node.value if node is not None and isinstance(node.value, Mapping) else {}
