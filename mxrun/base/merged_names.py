"""Abbreviation of many names by patterns: `conv1_weight, conv2_weight` are `conv*_weight`."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"[0-9]+")


def merged_names(names: Iterable[str]) -> tuple[str, ...]:
    """Merge names that differ only in their numbers, in order of first appearance.

    A number that is the same in all merged names stays; `*` replaces the others.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        groups.setdefault(tuple(_NUMBER.split(name)), []).append(name)
    return tuple(_pattern(texts, merged) for texts, merged in groups.items())


def _pattern(texts: tuple[str, ...], names: list[str]) -> str:
    """Return the pattern of names that share `texts` around their numbers."""
    columns = zip(*(_NUMBER.findall(name) for name in names), strict=True)
    numbers = [column[0] if len({*column}) == 1 else "*" for column in columns]
    return texts[0] + "".join(
        number + text for number, text in zip(numbers, texts[1:], strict=True)
    )
