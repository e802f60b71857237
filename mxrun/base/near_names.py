"""Names that a misspelt one may mean.

Two names are near where they differ in case and separators alone, or in few letters for their
length (Damerau-Levenshtein distance), or where one begins with the other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

MAX_NAMES = 12
"""Names that a message lists before it says how many more there are."""

_MAX_SUGGESTED = 3
# A letter may be wrong for so many letters of the longer name.
_LETTERS_PER_MISTAKE = 4
# Shorter names begin too many others, or end too few, to mean them.
_MIN_BEGINNING = 3
_MIN_WHOLE = 4
_SEPARATORS = re.compile(r"[\s_\-./]+")


def folded(name: str) -> str:
    """The letters and digits of a name in lower case: `batch_norm` is `batchnorm`."""
    return _SEPARATORS.sub("", name).lower()


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The known names nearest to `name`, nearest first, at most 3; empty where none is near.

    Those that differ in case and separators alone, where there are any.
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
        if distance <= allowed:
            ranked.append((0, distance, each))
        elif _begins(wanted, letters):
            ranked.append((1, longer - shorter, each))
    return [each for _, _, each in sorted(ranked)[:_MAX_SUGGESTED]]


def _begins(wanted: str, known: str) -> bool:
    """Whether one of two names begins with the other, of which enough is there."""
    if len(wanted) >= _MIN_BEGINNING and known.startswith(wanted):
        return True
    return len(known) >= _MIN_WHOLE and wanted.startswith(known)


def edit_distance(left: str, right: str, most: int) -> int:
    """Letters to insert, delete, change or swap with their neighbours to make `right` of `left`.

    Any number above `most` stands for all of them.
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
    """A hint naming the known names closest to `name`; empty when nothing comes close."""
    near = near_names(name, known)
    return "did you mean " + " or ".join(map(repr, near)) + "?" if near else ""


def listed(names: Collection[str], most: int = MAX_NAMES) -> str:
    """Names side by side, of many the first and how many more there are."""
    shown = list(names)[:most]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown) + more


class Suggestions:
    """Near names for the first mistakes of a pass, as many as an error shows.

    Each is held against every known name: for all of thousands that would take minutes.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def nearest(self, name: str, known: Iterable[str]) -> str:
        """As `nearest`; empty once there were enough."""
        if self._left <= 0:
            return ""
        self._left -= 1
        return nearest(name, known)
