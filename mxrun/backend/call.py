"""A native call: what a kernel becomes once everything it touches has an address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NativeCall:
    """`function(*arguments)` in C: integer or pointer arguments, at most six; returns int or void.

    `owner` keeps alive whatever the arguments point to. A function whose result is a status
    (`checked`) stops the tape when it returns anything but zero.
    """

    function: int
    arguments: tuple[int, ...]
    owner: Any
    checked: bool = False
