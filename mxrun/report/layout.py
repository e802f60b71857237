"""A layered drawing of a network: where every box stands and how every edge runs.

Boxes stand in ranks, each below all that it reads (longest path). An edge that passes ranks takes a
place in each, so that it runs around boxes and not through them. Orders within ranks follow the
barycentres of neighbours, of several sweeps the one with the fewest crossings; places are then the
least-squares solution that keeps boxes apart. The same input gives the same drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_ORDER_SWEEPS = 8
_PLACE_SWEEPS = 9
_BETWEEN_BOXES = 28.0
_BETWEEN_RANKS = 48.0
# A passing edge is a thin box that stays straight against its neighbours' pull.
_LANE_WIDTH = 12.0
_LANE_WEIGHT = 50.0
# Between the arrows that end at one box.
_BETWEEN_ARROWS = 12.0

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """What is drawn for a node, in pixels; the heavier, the more do neighbours keep in line."""

    name: str
    width: float
    height: float
    weight: float = 1.0


@dataclass(frozen=True)
class Edge:
    """From a box's lower side, at `port` (0 left, 1 right), to another's upper side."""

    source: str
    target: str
    port: float = 0.5


@dataclass(frozen=True)
class NetworkLayout:
    """corners: the upper left corner of each box. routes: the points of each edge, in order."""

    width: float
    height: float
    corners: Mapping[str, Point]
    routes: tuple[tuple[Point, ...], ...]


@dataclass(eq=False)
class _Item:
    """A box, or the place of a passing edge, in one rank."""

    rank: int
    width: float
    height: float
    weight: float
    above: list[_Item] = field(default_factory=list)
    below: list[_Item] = field(default_factory=list)
    place: float = 0.0


def lay_out(boxes: Sequence[Box], edges: Sequence[Edge]) -> NetworkLayout:
    """Place everything; `boxes` stand in an order in which no edge runs backwards."""
    ranks = _ranks(boxes, edges)
    items = {box.name: _Item(ranks[box.name], box.width, box.height, box.weight) for box in boxes}
    paths = [list(_path(items[edge.source], items[edge.target])) for edge in edges]
    layers: list[list[_Item]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for item in (*items.values(), *(lane for path in paths for lane in path[1:-1])):
        layers[item.rank].append(item)
    _order(layers)
    _place(layers)
    return _drawn(items, layers, paths, edges)


def _ranks(boxes: Sequence[Box], edges: Sequence[Edge]) -> dict[str, int]:
    """One below the lowest that is read; what reads nothing stands just above its first reader."""
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
    """The items of an edge from rank to rank, wired to one another."""
    last = source
    yield source
    for rank in range(source.rank + 1, target.rank + 1):
        item = target if rank == target.rank else _Item(rank, _LANE_WIDTH, 0.0, _LANE_WEIGHT)
        last.below.append(item)
        item.above.append(last)
        yield item
        last = item


def _order(layers: list[list[_Item]]) -> None:
    """Sort every layer so that few edges cross."""
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
    """By the mean position of the neighbours; what has none stays where it is."""
    if not layer:
        return
    beside = layer[0].rank + (-1 if downwards else 1)
    positions = {}
    if 0 <= beside < len(layers):
        positions = {item: index for index, item in enumerate(layers[beside])}
    keys = {}
    for index, item in enumerate(layer):
        near = [positions[other] for other in (item.above if downwards else item.below)]
        keys[item] = sum(near) / len(near) if near else float(index)
    layer.sort(key=keys.__getitem__)


def _crossings(layers: Sequence[Sequence[_Item]]) -> int:
    """Pairs of edges between neighbouring ranks that cross."""
    count = 0
    for upper, lower in pairwise(layers):
        positions = {item: index for index, item in enumerate(lower)}
        ends = [[positions[below] for below in item.below] for item in upper]
        for index, own in enumerate(ends):
            for other in ends[index + 1 :]:
                count += sum(low > high for low in own for high in other)
    return count


def _place(layers: Sequence[Sequence[_Item]]) -> None:
    """Give every item the middle of its neighbours, as far as those beside it allow.

    The last sweep goes down, so that what follows a box in line stands straight below it.
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
    """Least squares of place - pull, where neighbours keep their distance.

    Less the room that all before it need, places must only not decrease: the solution pools
    adjacent violators (isotonic regression).
    """
    room = 0.0
    offsets: list[float] = []
    # Pools of neighbours that touch: [mean, weight, how many].
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


def _drawn(
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
        # In the middle of its rank, so that edges leave a row of boxes at one height.
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
    )


def _arrive(routes: list[list[Point]], left: float, right: float, y: float) -> None:
    """End routes at a box's upper side: straight where they can, in the order they come."""
    routes.sort(key=lambda route: route[-1][0])
    gap = min(_BETWEEN_ARROWS, (right - left) / (len(routes) + 1))
    for index, route in enumerate(routes):
        lowest = left + gap * (index + 1)
        highest = right - gap * (len(routes) - index)
        route.append((min(max(route[-1][0], lowest), highest), y))
