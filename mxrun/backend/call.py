"""A native call: what a kernel becomes once everything it touches has an address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Slots in front of a native function's own arguments: the addresses of omp_get_thread_num and
# omp_get_num_threads, or zeros where the caller is alone.
HEADER_SLOTS = 2


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
