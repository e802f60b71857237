"""Words of a text, and texts of words."""

from __future__ import annotations

import re
from collections.abc import Iterable

LINE_END = "\n"
"""The token of a line's end."""

# Letters and digits, with their combining accents and with apostrophes between them; each other
# character that is no blank is a word of its own. Words first: they are the most frequent.
_WITH_MARKS = re.compile(r"\w+(?:(?:['’]|[\u0300-\u036f]+)\w+)*[\u0300-\u036f]*|\S|\n")
_AT_BLANKS = re.compile(r"\S+|\n")
# Marks without a blank before them, and after them.
_CLOSING = frozenset(".,;:!?)]}…%’'")
_OPENING = frozenset("([{")


def words_of(text: str, punctuation: bool) -> list[str]:
    """Return the words and line ends of a text.

    punctuation: whether marks are words of their own; else words are what stands between blanks.
    """
    return (_WITH_MARKS if punctuation else _AT_BLANKS).findall(text)


def joined(words: Iterable[str], before: str, punctuation: bool) -> str:
    """Return words as text, which follows the word `before`; empty at the beginning of a text."""
    parts = []
    for word in words:
        parts.append(f" {word}" if _needs_blank(before, word, punctuation) else word)
        before = word
    return "".join(parts)


def _needs_blank(before: str, word: str, punctuation: bool) -> bool:
    if before in ("", LINE_END) or word == LINE_END:
        return False
    return not punctuation or (word not in _CLOSING and before not in _OPENING)
