"""Layout of a tall network in several columns, as text is set in a newspaper.

Ranks stay as they are laid out. A column takes a number of consecutive ranks. An edge from one
column to the next runs around it: down below the column, through the gap beside it, and up to the
head of the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mxrun.report.layout import Box, Edge, NetworkLayout, Point

# Height up to which there is one column, and the ratio of height to width that several aim at.
_PAGE, _ASPECT = 1100.0, 1.3
# Width between columns, without the lines in it; distance between these lines.
_BETWEEN_COLUMNS = 84.0
_TRACK = 7.0
# Room for the shapes below the last boxes of a column, and above the first boxes.
_FOOT, _HEAD = 30.0, 44.0
# Distance from the ideal end of a column, as a fraction of its height, that is worth one edge less
# across the gap.
_EDGE_COST = 0.15


def in_columns(layout: NetworkLayout, boxes: Sequence[Box], edges: Sequence[Edge]) -> NetworkLayout:
    """Return the layout in as many columns as bring it near the format of a page."""
    ends = _column_ends(layout, edges)
    return layout if len(ends) == 1 else _Columns(layout, boxes, edges, ends).laid_out()


def _column_ends(layout: NetworkLayout, edges: Sequence[Edge]) -> list[int]:
    """Return the number after the last rank of each column."""
    count, ranks = 1, layout.ranks
    if layout.height > _PAGE:
        count = math.ceil(math.sqrt(layout.height / (_ASPECT * layout.width)))
    crossing = [0] * (len(ranks) + 1)
    for edge in edges:
        for rank in range(layout.rank[edge.source], layout.rank[edge.target]):
            crossing[rank + 1] += 1
    cost = _EDGE_COST * layout.height / count
    ends = [0]
    for number in range(1, count):
        ideal = layout.height * number / count
        free = range(ends[-1] + 1, len(ranks) - (count - number) + 1)
        if not free:
            break
        ends.append(
            min(
                free,
                key=lambda end: crossing[end] * cost + abs(ranks[end - 1][1] - ideal),
            )
        )
    return [*ends[1:], len(ranks)]


class _Columns:
    """Columns of a layout while they are placed."""

    def __init__(
        self,
        layout: NetworkLayout,
        boxes: Sequence[Box],
        edges: Sequence[Edge],
        ends: Sequence[int],
    ) -> None:
        columns = tuple(
            column
            for column, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
            for _ in range(start, end)
        )
        self._layout, self._edges, self._ends = replace(layout, columns=columns), edges, ends
        # Edges that leave each column for the next: their numbers, and parts of routes.
        self._leaving: list[list[int]] = [[] for _ in ends]
        self._parts = [self._split(number) for number in range(len(edges))]
        self._head = _HEAD + _TRACK * max(map(len, self._leaving))
        self._place(boxes)

    def _split(self, number: int) -> list[tuple[int, list[Point]]]:
        """Return the parts of an edge's route with their columns.

        A route has two points for each gap between the ranks that it runs through.
        """
        edge, route = self._edges[number], list(self._layout.routes[number])
        first, last = self._layout.rank[edge.source], self._layout.rank[edge.target]
        parts: list[tuple[int, list[Point]]] = []
        start = 0
        for rank in range(first, last):
            column = self._layout.columns[rank]
            if self._layout.columns[rank + 1] != column:
                end = 2 * (rank - first) + 1
                parts.append((column, route[start:end]))
                self._leaving[column].append(number)
                start = end
        parts.append((self._layout.columns[last], route[start:]))
        return parts

    def _place(self, boxes: Sequence[Box]) -> None:
        """Set the shift of each column, its right side and its foot, and the size of the whole."""
        spans = [[math.inf, -math.inf] for _ in self._ends]
        widths = {box.name: box.width for box in boxes}
        for name, (x, _) in self._layout.corners.items():
            _widen(spans[self._layout.column(name)], x, x + widths[name])
        for column, part in (part for parts in self._parts for part in parts):
            for x, _ in part:
                _widen(spans[column], x, x)
        self._shifts: list[Point] = []
        self._rights: list[float] = []
        self._feet: list[float] = []
        left, ranks = 0.0, self._layout.ranks
        for column, (low, high) in enumerate(spans):
            top = ranks[self._ends[column - 1] if column else 0][0]
            self._shifts.append((left - low, self._head - top))
            self._rights.append(left + high - low)
            self._feet.append(ranks[self._ends[column] - 1][1] + self._head - top)
            lines = len(self._leaving[column]) * _TRACK
            left = self._rights[-1] + _BETWEEN_COLUMNS + lines
        self._width = self._rights[-1]
        self._height = max(
            foot + (_FOOT + _TRACK * len(leaving) if leaving else 0.0)
            for foot, leaving in zip(self._feet, self._leaving, strict=True)
        )

    def _shifted(self, column: int, point: Point) -> Point:
        x, y = self._shifts[column]
        return point[0] + x, point[1] + y

    def _route(self, number: int) -> tuple[Point, ...]:
        """Return the points of an edge, with its way from column to column."""
        route: list[Point] = []
        for column, part in self._parts[number]:
            moved = [self._shifted(column, point) for point in part]
            if route:
                route += self._around(column - 1, number, route[-1][0], moved[0][0])
            route += moved
        return tuple(route)

    def _around(self, column: int, number: int, start: float, end: float) -> list[Point]:
        """Return the corners of an edge between the foot of a column and the head of the next."""
        order = self._leaving[column].index(number)
        below = self._feet[column] + _FOOT + _TRACK * order
        beside = self._rights[column] + _BETWEEN_COLUMNS - 18.0 + _TRACK * order
        above = self._head - _HEAD + 4.0 - _TRACK * order
        return [(start, below), (beside, below), (beside, above), (end, above)]

    def laid_out(self) -> NetworkLayout:
        """Return the finished layout."""
        layout = self._layout
        down = [self._shifts[column][1] for column in layout.columns]
        return replace(
            layout,
            width=self._width,
            height=self._height,
            corners={
                name: self._shifted(layout.column(name), corner)
                for name, corner in layout.corners.items()
            },
            routes=tuple(self._route(number) for number in range(len(self._edges))),
            ranks=tuple(
                (top + y, bottom + y) for (top, bottom), y in zip(layout.ranks, down, strict=True)
            ),
        )


def _widen(span: list[float], low: float, high: float) -> None:
    span[0], span[1] = min(span[0], low), max(span[1], high)
