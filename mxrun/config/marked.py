"""A YAML value of which every key and every part remembers where it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mxrun.base.errors import SourceLocation

Scalar: TypeAlias = bool | int | float | str | None
Path: TypeAlias = tuple[str | int, ...]

REQUIRED = "???"
"""A text that starts so stands for a value the user must give; what follows describes it."""


@dataclass(frozen=True)
class SourceNode:
    """A scalar, a list or a mapping, with the place of the value and of the key that holds it.

    Two marked values are equal when they say the same, wherever they were written.
    """

    value: Scalar | tuple[SourceNode, ...] | Mapping[str, SourceNode]
    place: SourceLocation = field(compare=False)
    key_place: SourceLocation | None = field(default=None, compare=False)

    def plain(self) -> Any:
        """The value without its places: scalars, tuples and dictionaries."""
        if isinstance(self.value, Mapping):
            return {key: part.plain() for key, part in self.value.items()}
        if isinstance(self.value, tuple):
            return tuple(part.plain() for part in self.value)
        return self.value

    def find(self, *path: str | int) -> SourceNode:
        """The value at `path`, or the deepest one on the way to it that exists."""
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
        """The place of the key that holds this value; of the value itself in a list."""
        return self.key_place or self.place

    @property
    def is_required(self) -> bool:
        """Whether this is the mark of a value that the user has yet to give."""
        return isinstance(self.value, str) and self.value.startswith(REQUIRED)


def describe(value: object) -> str:
    """How a message names a value: what it says and what kind it is."""
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
    """A path as the command line writes it: `network.layers[0].Convolution.num_filter`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            word = f'"{step}"' if any(mark in step for mark in '.[]="') else step
            text += f".{word}" if text else word
    return text
