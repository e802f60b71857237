"""Loops of native functions: what a `for` runs over, besides `range` and `each`.

These are functions that yield, inlined with the body of the loop in place of each `yield`. Their
iterations are independent.
"""

from __future__ import annotations

from collections.abc import Iterator

from mxrun.codegen.intrinsics import each, share
from mxrun.codegen.jit import inlined
from mxrun.codegen.vectors import LANES


@inlined
def elements_of_task(count: int) -> Iterator[int]:
    """Yield the numbers of the task's elements, which are multiples of 16."""
    begin, end = share(count)
    yield from each(begin, end)


@inlined
def rows_of_task(rows: int) -> Iterator[int]:
    """Yield the numbers of the task's rows, of which each is as much work as a task may be."""
    # share() splits at multiples of 16, so each row counts as 16 elements.
    begin, end = share(rows * 16)
    yield from each(begin // 16, end // 16)


@inlined
def runs_of_task(rows: int, columns: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the task's part of rows: row, first column, place of the first element, width.

    Rows are divided between tasks where their elements are.
    """
    begin, end = share(rows * columns)
    for row in each(begin // columns, (end + columns - 1) // columns):
        at = max(row * columns, begin)
        yield row, at - row * columns, at, min((row + 1) * columns, end) - at


@inlined
def vectors(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the place of every vector of a run of elements, and the number of its elements."""
    full = begin + (end - begin) // LANES * LANES
    for j in each(begin, full, LANES):
        yield j, LANES
    if full < end:
        yield full, end - full
