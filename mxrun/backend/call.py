"""Native calls, the executable form of a kernel bound to addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Slots before a native function's own arguments: the addresses of omp_get_thread_num and
# omp_get_num_threads, or zeros for a call on one thread.
HEADER_SLOTS = 2


@dataclass(frozen=True)
class NativeCall:
    """The C call `function(*arguments)` with at most six integer or pointer arguments.

    The function returns int or void. owner: holds references to everything the arguments point to.
    checked: the result is a status, and a status other than zero stops the tape.
    """

    function: int
    arguments: tuple[int, ...]
    owner: Any
    checked: bool = False
