"""Names of layers, and references between layers.

A name consists of words joined by `/`. The part before the last `/` is the layer's scope: the block
that contains it. A reference `conv1` inside the scope `a/b` is resolved to `a/b/conv1`, else
`a/conv1`, else `conv1`; `/conv1` only to the last. The name of a block refers to its last layer.
`split[1]` is the second output of `split`, `rnn[h]` the output `h` of `rnn`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

WORD = r"[A-Za-z_][A-Za-z0-9_.-]*"
NAME = rf"{WORD}(/{WORD})*"
REFERENCE = rf"/?{NAME}(\[([0-9]{{1,4}}|{WORD})\])?"
LONGEST_NAME = 200

_REFERENCE = re.compile(rf"(?P<root>/?)(?P<name>{NAME})(\[(?P<output>[0-9]{{1,4}}|{WORD})\])?")


def is_name(value: object) -> bool:
    """Return whether `value` is a valid name of a layer, an input or a block."""
    return isinstance(value, str) and _matches(NAME, value)


def is_word(value: object) -> bool:
    """Return whether `value` is a valid name without scope."""
    return isinstance(value, str) and _matches(WORD, value)


def is_reference(value: object) -> bool:
    """Return whether `value` is a syntactically valid reference to a layer's output."""
    return isinstance(value, str) and _matches(REFERENCE, value)


def _matches(pattern: str, text: str) -> bool:
    return len(text) <= LONGEST_NAME and re.fullmatch(pattern, text) is not None


def scope_of(name: str) -> str:
    """Return the scope of a full name; empty at the top level."""
    return name.rpartition("/")[0]


def joined(scope: str, name: str) -> str:
    """Return the full name of what is called `name` in a scope."""
    return f"{scope}/{name}" if scope else name


def automatic_stem(kind: str) -> str:
    """Return the stem of the automatic names of layers of one kind, such as `convolution`."""
    return re.sub("[^a-z0-9_]", "_", kind[:50].lower()).lstrip("0123456789")


class Names:
    """Names defined so far, inputs and layers in order, and resolution of references to them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._last: dict[str, str] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Add a full name; each of its scopes now refers to it as its last layer."""
        self._last[name] = name
        scope = scope_of(name)
        while scope:
            self._last[scope] = name
            scope = scope_of(scope)

    def __contains__(self, name: str) -> bool:
        return self._last.get(name) == name

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def resolve(self, reference: str, scope: str = "") -> tuple[str, int | str] | None:
        """Return the full name, and the number or name of the output, of a reference in `scope`.

        Returns None if no such name exists or the text is not a valid reference.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            return None
        written = match["output"] or "0"
        output: int | str = int(written) if written.isdecimal() else written
        while not match["root"] and scope:
            if found := self._last.get(f"{scope}/{match['name']}"):
                return found, output
            scope = scope_of(scope)
        found = self._last.get(match["name"])
        return None if found is None else (found, output)
