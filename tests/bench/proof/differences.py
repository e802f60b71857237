"""Differences between the facts of two commits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from proof.installation import Facts

# Pairs (pattern, replacement) that make a name of the base that of the working tree.
RENAMES: tuple[tuple[str, str], ...] = ()


def renamed(value: Any) -> Any:
    """Translate a fact of the base into the names of the working tree."""
    if isinstance(value, str):
        for pattern, replacement in RENAMES:
            value = re.sub(pattern, replacement, value)
        return value
    if isinstance(value, list):
        return [renamed(each) for each in value]
    if isinstance(value, Mapping):
        return {renamed(key): renamed(each) for key, each in value.items()}
    return value


def differences(base: Facts, work: Facts) -> Iterator[str]:
    """Yield a line for each fact that differs, with the first differing entries."""
    for key in sorted({*base, *work}):
        if key not in base or key not in work:
            yield f"{key}: only in the {'base' if key in base else 'working tree'}"
        elif base[key] != work[key]:
            before, after = first_difference(base[key], work[key])
            yield f"{key}: {before} before, {after} now"


def first_difference(before: Any, after: Any) -> tuple[Any, Any]:
    """Return the first differing elements of two lists of equal length, else both arguments."""
    if isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=False):
            if one != other:
                return one, other
        return f"{len(before)} entries", f"{len(after)} entries"
    return before, after
