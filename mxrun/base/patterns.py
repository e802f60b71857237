"""Which of many patterns a name matches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

_SPECIAL = re.compile(r"[*?\[]")


_Entry = tuple[int, str, re.Pattern[str] | None]


class PatternTable:
    """Shell-style patterns, case-sensitive, by what they begin with.

    A name is held only against the patterns that begin as it does, so that thousands of patterns
    of as many names take no time for each pair.
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
        """The patterns that begin as the name does: position, text, and the form of one that is no
        plain name.
        """
        beginnings = (name[:size] for size in range(min(len(name), self._longest) + 1))
        return [entry for each in beginnings for entry in self._by_beginning.get(each, ())]

    def matching(self, name: str) -> list[str]:
        """The patterns that match, in the order they were given."""
        found = [
            (position, pattern)
            for position, pattern, form in self.candidates(name)
            if (pattern == name if form is None else form.match(name))
        ]
        return [pattern for _, pattern in sorted(found)]
