"""Words of a text, and texts of words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import chain, groupby

LINE_END = "\n"
"""The token of a line's end."""

# Code points among which all combining marks are: looking at all 1.1 million takes 0.5 s.
_WITH_MARKS = (range(0x300, 0x1F000), range(0xE0100, 0xE01F0))
# Zero-width non-joiner and joiner, which stand inside of words.
_JOINERS = "\u200c\u200d"
_AT_BLANKS = re.compile(r"\S+|\n")
# Marks without a blank before them, and after them.
_CLOSING = frozenset(".,;:!?)]}…%’'")
_OPENING = frozenset("([{")


def with_line_feeds(text: str) -> str:
    """Return a text whose line ends of two characters, CRLF, are line feeds.

    Vocabularies read texts so, once: when they learn, and when they encode.
    """
    return text.replace("\r\n", LINE_END)


def words_of(text: str, punctuation: bool) -> list[str]:
    """Return the words and line ends of a text.

    punctuation: whether marks are words of their own; else words are what stands between blanks.
    Combining marks, such as accents and the vowel signs of Indic scripts, belong to the character
    before them.
    """
    return (_with_marks() if punctuation else _AT_BLANKS).findall(text)


@cache
def _with_marks() -> re.Pattern[str]:
    """Return the pattern of words of letters, digits and the apostrophes between them.

    Each other character that is no blank is a word of its own. Words first: they are the most
    frequent.
    """
    found = []
    for is_mark, points in groupby(
        chain.from_iterable(_WITH_MARKS), lambda point: unicodedata.category(chr(point))[0] == "M"
    ):
        if is_mark:
            first, *others = points
            found.append(f"{chr(first)}-{chr(others[-1])}" if others else chr(first))
    # The look ahead decides for most characters, faster than the many ranges.
    marks = rf"(?=[^\0-\u02ff])[{_JOINERS}{''.join(found)}]+"
    return re.compile(rf"\w+(?:['’]\w+|{marks}\w*)*|\S(?:{marks})?|\n")


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
