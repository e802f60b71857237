"""What the same blocks would take in an allocator without offsets, for comparison.

MXNet's planner (src/nnvm/plan_memory.cc) walks over the steps with a list of whole blocks that are
free. A tensor takes the smallest that holds it, else the largest that does not, which then grows to
its size; both only within a factor of 16. Where there is none, a new block is made. Blocks are
never split and never joined.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

# NNVM_EXEC_MATCH_RANGE, as it is by default.
MATCH_RANGE = 16


def free_list_bytes(
    sizes: Sequence[int], first: Sequence[int], last: Sequence[int], match_range: int = MATCH_RANGE
) -> int:
    """Bytes of all blocks in the end; lifetimes are half-open [first, last).

    What is written by one step is placed by falling size, as in MXNet.
    """
    begin: dict[int, list[int]] = {}
    end: dict[int, list[int]] = {}
    for tensor in range(len(sizes)):
        begin.setdefault(first[tensor], []).append(tensor)
        end.setdefault(last[tensor], []).append(tensor)
    free: list[int] = []
    held: dict[int, int] = {}
    for step in sorted({*begin, *end}):
        for tensor in end.get(step, ()):
            insort(free, held.pop(tensor))
        for tensor in sorted(begin.get(step, ()), key=lambda tensor: -sizes[tensor]):
            held[tensor] = _take(free, sizes[tensor], match_range)
    return sum(free) + sum(held.values())


def _take(free: list[int], size: int, match_range: int) -> int:
    """Remove a block from the list, or make one; its bytes."""
    position = bisect_left(free, size)
    if position < len(free) and free[position] <= size * match_range:
        return free.pop(position)
    if position and free[position - 1] >= size // match_range:
        del free[position - 1]
    return size
