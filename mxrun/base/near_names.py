"""Suggestions for misspelt names.

Two names are near if they differ only in case and separators, if their edit distance
(Damerau-Levenshtein) is small for their length and enough letters are the same, or if one begins
with the other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

MAX_NAMES = 12
"""Maximum number of names that a message lists; the others are only counted."""

_MAX_SUGGESTED = 3
# One mistake is allowed per so many letters of the longer name.
_LETTERS_PER_MISTAKE = 4
# Fewer equal letters are chance: gpu is no slip for cpu, nor lag for log. But rum is one for run.
_MIN_EQUAL = 3
# Shorter names are prefixes of too many others: minimum length of the misspelt and the known name.
_MIN_BEGINNING = 3
_MIN_WHOLE = 4
_SEPARATORS = re.compile(r"[\s_\-./]+")


def folded(name: str) -> str:
    """Return the letters and digits of a name in lower case: `batch_norm` becomes `batchnorm`."""
    return _SEPARATORS.sub("", name).lower()


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names nearest to `name`, nearest first, at most 3.

    If some differ only in case and separators, only those are returned.
    """
    wanted = folded(name)
    candidates = {each: folded(each) for each in sorted(set(known) - {name})}
    same = [each for each, letters in candidates.items() if letters == wanted and wanted]
    if same:
        return same[:_MAX_SUGGESTED]
    ranked = []
    for each, letters in candidates.items():
        longer, shorter = max(len(letters), len(wanted)), min(len(letters), len(wanted))
        allowed = max(1, longer // _LETTERS_PER_MISTAKE)
        distance = edit_distance(wanted, letters, allowed) if shorter > 1 else longer
        is_swap = sorted(wanted) == sorted(letters)
        has_equal = longer - distance >= min(_MIN_EQUAL, shorter)
        begins_alike = letters.startswith(wanted[:2])
        if distance <= allowed and (has_equal or is_swap or begins_alike):
            ranked.append((0, distance, each))
        elif _begins(wanted, letters):
            ranked.append((1, longer - shorter, each))
    return [each for _, _, each in sorted(ranked)[:_MAX_SUGGESTED]]


def _begins(wanted: str, known: str) -> bool:
    """Return whether one of two names begins with the other, if the shorter one is long enough."""
    if len(wanted) >= _MIN_BEGINNING and known.startswith(wanted):
        return True
    return len(known) >= _MIN_WHOLE and wanted.startswith(known)


def edit_distance(left: str, right: str, most: int) -> int:
    """Return the Damerau-Levenshtein distance: letters to insert, delete, change or swap.

    A distance above `most` is returned as `most` + 1.
    """
    if abs(len(left) - len(right)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, letter in enumerate(left, 1):
        following = [i]
        for j, other in enumerate(right, 1):
            cost = min(row[j] + 1, following[j - 1] + 1, row[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == right[j - 2] and left[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            following.append(cost)
        if min(following) > most:
            return most + 1
        before, row = row, following
    return row[-1]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint naming the known names closest to `name`; empty if none is near.

    In YAML `{lr:0.1}` is one name: a colon needs a space behind it.
    """
    known = list(known)
    key, colon, rest = name.partition(":")
    if colon and key in known:
        return f"write a space after the colon: {key}: {rest}"
    near = near_names(name, known)
    return "did you mean " + " or ".join(map(repr, near)) + "?" if near else ""


def listed(names: Collection[str], most: int = MAX_NAMES) -> str:
    """Return names separated by commas: the first `most`, then the number of the others."""
    shown = list(names)[:most]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown) + more


class Suggestions:
    """Limited number of suggestions, as many as an error shows.

    Each name is compared with every known name; for thousands of mistakes that would take minutes.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def nearest(self, name: str, known: Iterable[str]) -> str:
        """Return the hint of the function `nearest`; empty once the limit is reached."""
        if self._left <= 0:
            return ""
        self._left -= 1
        return nearest(name, known)
