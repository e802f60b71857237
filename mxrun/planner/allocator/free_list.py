"""Free-list allocator of MXNet's planner, for comparison with planned offsets.

MXNet's planner (src/nnvm/plan_memory.cc) walks over the steps with a list of free blocks. A tensor
takes the smallest block that holds it, else the largest that does not, which then grows to its
size; both only within a factor of 16. If there is none, a new block is made. Blocks are never split
or merged.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

# Default of MXNet's NNVM_EXEC_MATCH_RANGE.
MATCH_RANGE = 16


def free_list_bytes(
    sizes: Sequence[int], first: Sequence[int], last: Sequence[int], match_range: int = MATCH_RANGE
) -> int:
    """Return the total bytes of all blocks at the end; lifetimes are half-open [first, last).

    Tensors written by one step are allocated by descending size, as in MXNet.
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
    """Remove a block from the list, or make one; return its bytes."""
    position = bisect_left(free, size)
    if position < len(free) and free[position] <= size * match_range:
        return free.pop(position)
    if position and free[position - 1] >= size // match_range:
        del free[position - 1]
    return size
