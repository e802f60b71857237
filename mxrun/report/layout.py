"""Layered layout of a network: positions of boxes and routes of edges.

Boxes are in ranks, each below all boxes that it reads (longest path). An edge that spans several
ranks takes a lane in each of them, so that it runs around boxes and not through them. The order
within ranks follows the barycentres of neighbours; of several sweeps, the order with the fewest
crossings is used. Positions are then the least-squares solution that keeps boxes apart. The layout
is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise

from mxrun.base.dataclass import dataclass

_ORDER_SWEEPS = 8
_PLACE_SWEEPS = 9
_BETWEEN_BOXES = 28.0
_BETWEEN_RANKS = 46.0
# The lane of a passing edge is a thin box; its high weight keeps the edge straight.
_LANE_WIDTH = 12.0
_LANE_WEIGHT = 50.0
# Gap between the arrows that end at one box.
_BETWEEN_ARROWS = 12.0

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """Size of a node's box in pixels.

    weight: pull of the box on the positions of its neighbours.
    """

    name: str
    width: float
    height: float
    weight: float = 1.0


@dataclass(frozen=True)
class Edge:
    """Edge from a box's lower side, at `port` (0 left, 1 right), to another box's upper side."""

    source: str
    target: str
    port: float = 0.5


@dataclass(frozen=True)
class NetworkLayout:
    """Positions of all boxes and edges.

    corners: the upper left corner of each box. routes: the points of each edge, in order. rank:
    of each box. ranks: the upper and the lower edge of each rank. columns: the column of each rank.
    """

    width: float
    height: float
    corners: Mapping[str, Point]
    routes: tuple[tuple[Point, ...], ...]
    rank: Mapping[str, int]
    ranks: tuple[tuple[float, float], ...]
    columns: tuple[int, ...]

    def column(self, name: str) -> int:
        """Return the column of a box."""
        return self.columns[self.rank[name]]


@dataclass(eq=False)
class _Item:
    """A box, or the lane of an edge that passes, in one rank."""

    rank: int
    width: float
    height: float
    weight: float
    above: list[_Item] = field(default_factory=list)
    below: list[_Item] = field(default_factory=list)
    place: float = 0.0


def lay_out(boxes: Sequence[Box], edges: Sequence[Edge]) -> NetworkLayout:
    """Return the layout. `boxes` are in topological order of the edges."""
    ranks = _ranks(boxes, edges)
    items = {box.name: _Item(ranks[box.name], box.width, box.height, box.weight) for box in boxes}
    paths = [list(_path(items[edge.source], items[edge.target])) for edge in edges]
    layers: list[list[_Item]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for item in (*items.values(), *(lane for path in paths for lane in path[1:-1])):
        layers[item.rank].append(item)
    _order(layers)
    _place(layers)
    return _layout(items, layers, paths, edges)


def _ranks(boxes: Sequence[Box], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the rank of each box: one below the lowest box that it reads.

    A box that reads nothing is one rank above its first reader.
    """
    sources: dict[str, list[str]] = {box.name: [] for box in boxes}
    targets: dict[str, list[str]] = {box.name: [] for box in boxes}
    for edge in edges:
        sources[edge.target].append(edge.source)
        targets[edge.source].append(edge.target)
    ranks: dict[str, int] = {}
    for name, read in sources.items():
        ranks[name] = max((ranks[source] + 1 for source in read), default=0)
    for name, read in sources.items():
        if not read and targets[name]:
            ranks[name] = min(ranks[target] for target in targets[name]) - 1
    return ranks


def _path(source: _Item, target: _Item) -> Iterator[_Item]:
    """Yield the items of an edge from rank to rank, and link each to the next."""
    last = source
    yield source
    for rank in range(source.rank + 1, target.rank + 1):
        item = target if rank == target.rank else _Item(rank, _LANE_WIDTH, 0.0, _LANE_WEIGHT)
        last.below.append(item)
        item.above.append(last)
        yield item
        last = item


def _order(layers: list[list[_Item]]) -> None:
    """Sort every rank so that few edges cross."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    for sweep in range(_ORDER_SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            _sort(layer, layers, downwards)
        crossings = _crossings(layers)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    for layer, order in zip(layers, best, strict=True):
        layer[:] = order


def _sort(layer: list[_Item], layers: Sequence[Sequence[_Item]], downwards: bool) -> None:
    """Sort a rank by the mean position of the neighbours; items without neighbours keep their
    place.
    """
    if not layer:
        return
    beside = layer[0].rank + (-1 if downwards else 1)
    positions = {}
    if 0 <= beside < len(layers):
        positions = {item: index for index, item in enumerate(layers[beside])}
    keys = {}
    for index, item in enumerate(layer):
        neighbours = [positions[other] for other in (item.above if downwards else item.below)]
        keys[item] = sum(neighbours) / len(neighbours) if neighbours else float(index)
    layer.sort(key=keys.__getitem__)


def _crossings(layers: Sequence[Sequence[_Item]]) -> int:
    """Count the pairs of edges between neighbouring ranks that cross."""
    count = 0
    for upper, lower in pairwise(layers):
        positions = {item: index for index, item in enumerate(lower)}
        ends = [[positions[below] for below in item.below] for item in upper]
        for index, first_ends in enumerate(ends):
            for other in ends[index + 1 :]:
                count += sum(low > high for low in first_ends for high in other)
    return count


def _place(layers: Sequence[Sequence[_Item]]) -> None:
    """Move every item to the mean position of its neighbours, as far as the items beside it allow.

    The last sweep goes downwards, so that a chain of boxes forms a straight line.
    """
    for layer in layers:
        _settle(layer, lambda item: 0.0)
    for sweep in range(_PLACE_SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            _settle(layer, _pull_from_above if downwards else _pull_from_below)


def _pull_from_above(item: _Item) -> float:
    return _mean(item.above or item.below, item)


def _pull_from_below(item: _Item) -> float:
    return _mean(item.below or item.above, item)


def _mean(items: Sequence[_Item], otherwise: _Item) -> float:
    if not items:
        return otherwise.place
    total = sum(item.weight for item in items)
    return sum(item.weight * item.place for item in items) / total


def _settle(layer: Sequence[_Item], pull: Callable[[_Item], float]) -> None:
    """Minimise the squares of place - pull, subject to the distance between neighbours.

    After subtracting the room of all items before it, the places must only be non-decreasing. The
    solution pools adjacent violators (isotonic regression).
    """
    room = 0.0
    offsets: list[float] = []
    # Pools of adjacent items: [mean, weight, number of items].
    pools: list[tuple[float, float, int]] = []
    for index, item in enumerate(layer):
        if index:
            room += (layer[index - 1].width + item.width) / 2 + _BETWEEN_BOXES
        offsets.append(room)
        pool = (pull(item) - room, item.weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, weight, count = pools.pop()
            total = weight + pool[1]
            pool = ((mean * weight + pool[0] * pool[1]) / total, total, count + pool[2])
        pools.append(pool)
    places = [mean for mean, _, count in pools for _ in range(count)]
    for item, place, offset in zip(layer, places, offsets, strict=True):
        item.place = place + offset


def _layout(
    items: Mapping[str, _Item],
    layers: Sequence[Sequence[_Item]],
    paths: Sequence[Sequence[_Item]],
    edges: Sequence[Edge],
) -> NetworkLayout:
    everything = [item for layer in layers for item in layer]
    left = min((item.place - item.width / 2 for item in everything), default=0.0)
    right = max((item.place + item.width / 2 for item in everything), default=0.0)
    tops: list[float] = []
    bottom = 0.0
    heights = [max((item.height for item in layer), default=0.0) for layer in layers]
    for height in heights:
        tops.append(bottom)
        bottom += height + _BETWEEN_RANKS

    def corner(item: _Item) -> Point:
        # Centred in the rank, so that the edges below a row of boxes start at similar heights.
        slack = (heights[item.rank] - item.height) / 2
        return item.place - item.width / 2 - left, tops[item.rank] + slack

    routes: list[list[Point]] = []
    for edge, (source, *lanes, _) in zip(edges, paths, strict=True):
        x, y = corner(source)
        route = [(x + source.width * edge.port, y + source.height)]
        for lane in lanes:
            top = tops[lane.rank]
            middle = lane.place - left
            route += [(middle, top), (middle, top + heights[lane.rank])]
        routes.append(route)
    for name, item in items.items():
        x, y = corner(item)
        arriving = [route for edge, route in zip(edges, routes, strict=True) if edge.target == name]
        _arrive(arriving, x, x + item.width, y)
    return NetworkLayout(
        width=right - left,
        height=max(0.0, bottom - _BETWEEN_RANKS),
        corners={name: corner(item) for name, item in items.items()},
        routes=tuple(map(tuple, routes)),
        rank={name: item.rank for name, item in items.items()},
        ranks=tuple((top, top + height) for top, height in zip(tops, heights, strict=True)),
        columns=(0,) * len(layers),
    )


def _arrive(routes: list[list[Point]], left: float, right: float, y: float) -> None:
    """End the routes at the upper side of a box, straight where possible, in order of their
    positions.
    """
    routes.sort(key=lambda route: route[-1][0])
    gap = min(_BETWEEN_ARROWS, (right - left) / (len(routes) + 1))
    for index, route in enumerate(routes):
        lowest = left + gap * (index + 1)
        highest = right - gap * (len(routes) - index)
        route.append((min(max(route[-1][0], lowest), highest), y))
