"""Names of layers and how one layer refers to another.

A name is made of words joined by `/`; what stands before the last `/` is the layer's scope, the
block it belongs to. A reference `conv1` inside the scope `a/b` means `a/b/conv1`, else `a/conv1`,
else `conv1`; `/conv1` means just the last. The name of a block stands for its last layer.
`split[1]` is the second output of `split`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

WORD = r"[A-Za-z_][A-Za-z0-9_.-]*"
NAME = rf"{WORD}(/{WORD})*"
REFERENCE = rf"/?{NAME}(\[[0-9]{{1,4}}\])?"
LONGEST_NAME = 200

_REFERENCE = re.compile(rf"(?P<root>/?)(?P<name>{NAME})(\[(?P<output>[0-9]{{1,4}})\])?")


def is_name(value: object) -> bool:
    """Whether `value` may name a layer, an input or a block."""
    return isinstance(value, str) and _matches(NAME, value)


def is_word(value: object) -> bool:
    """Whether `value` is a name without scope."""
    return isinstance(value, str) and _matches(WORD, value)


def is_reference(value: object) -> bool:
    """Whether `value` has the form of a reference to a layer's output."""
    return isinstance(value, str) and _matches(REFERENCE, value)


def _matches(pattern: str, text: str) -> bool:
    return len(text) <= LONGEST_NAME and re.fullmatch(pattern, text) is not None


def scope_of(name: str) -> str:
    """The scope of a full name; empty at the top."""
    return name.rpartition("/")[0]


def automatic_stem(kind: str) -> str:
    """What the automatic names of layers of one kind start with: `convolution`."""
    return re.sub("[^a-z0-9_]", "_", kind[:50].lower()).lstrip("0123456789")


class Names:
    """The names that exist so far, inputs and layers in order, and what references to them mean."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._last: dict[str, str] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Add a full name; its scopes now stand for it, as their last layer."""
        self._last[name] = name
        scope = scope_of(name)
        while scope:
            self._last[scope] = name
            scope = scope_of(scope)

    def __contains__(self, name: str) -> bool:
        return self._last.get(name) == name

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def resolve(self, reference: str, scope: str = "") -> tuple[str, int] | None:
        """The full name and the output's number that a reference written in `scope` means.

        None when nothing has that name, or the text is no reference at all.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            return None
        output = int(match["output"] or 0)
        while not match["root"] and scope:
            if found := self._last.get(f"{scope}/{match['name']}"):
                return found, output
            scope = scope_of(scope)
        found = self._last.get(match["name"])
        return None if found is None else (found, output)
