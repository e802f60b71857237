"""Matching of a name against many shell-style patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

_SPECIAL = re.compile(r"[*?\[]")


_Entry = tuple[int, str, re.Pattern[str] | None]


class PatternTable:
    """Shell-style patterns, case-sensitive, indexed by their literal prefix.

    A name is compared only with the patterns whose prefix it has, so that thousands of names and
    thousands of patterns do not take time for each pair.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._by_beginning: dict[str, list[_Entry]] = {}
        for position, pattern in enumerate(patterns):
            beginning = _SPECIAL.split(pattern, maxsplit=1)[0]
            is_name = beginning == pattern
            entry = position, pattern, None if is_name else re.compile(translate(pattern))
            self._by_beginning.setdefault(beginning, []).append(entry)
        self._longest = max(map(len, self._by_beginning), default=0)

    def candidates(self, name: str) -> list[_Entry]:
        """Return the patterns whose prefix `name` has: position, text, compiled form.

        The compiled form is None for a plain name.
        """
        beginnings = (name[:size] for size in range(min(len(name), self._longest) + 1))
        return [entry for each in beginnings for entry in self._by_beginning.get(each, ())]

    def matching(self, name: str) -> list[str]:
        """Return the patterns that match, in the order they were given."""
        found = [
            (position, pattern)
            for position, pattern, form in self.candidates(name)
            if (pattern == name if form is None else form.match(name))
        ]
        return [pattern for _, pattern in sorted(found)]
