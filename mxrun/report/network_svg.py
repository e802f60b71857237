"""SVG drawing of a network: boxes in ranks, edges with the shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.report.fitted_table import shortened
from mxrun.report.layout import Box, Edge, NetworkLayout, Point, lay_out
from mxrun.report.layout_columns import in_columns
from mxrun.report.network import drawn_families, network_title, node_lines, shape_text, size_text
from mxrun.report.network_fold import BLOCK, fold
from mxrun.report.palette import FAMILY_COLOURS, INK, LINE
from mxrun.report.svg import (
    FONT_SIZE,
    SMALL_SIZE,
    TITLE_SIZE,
    clean,
    document,
    element,
    points,
    rectangle,
    text,
    text_width,
)

Report = Mapping[str, Any]
Attributes = Mapping[str, str | float]

_MARGIN = 24.0
_LINE = 15.0
# Maximum number of characters of a line in a box.
_MAX_LETTERS = 48
_GROUP_LEVELS = 2
_GROUP_PAD = 10.0
_GROUP_NAME, _GROUP_FOOT = 12.0, 3.0
# Distance of an output's shape from the box above.
_SHAPE = 13.0
_LEGEND_ROW = 22.0
_MIN_WIDTH = 420.0
# Height of the strip below a folded block, with the share of each family of its layers.
_STRIP = 5.0
_INPUT: Attributes = {
    "class_": "outline",
    "fill": INK,
    "fill_opacity": "0.06",
    "rx": 14.0,
    "stroke": INK,
    "stroke_width": 1.4,
}
_FOLDED: Attributes = {
    "class_": "line",
    "fill": LINE,
    "fill_opacity": "0.08",
    "rx": 4.0,
    "stroke": LINE,
    "stroke_width": 1.4,
}


def network_svg(report: Report, depth: int | None = None) -> str:
    """Return the SVG document of a network (`describe_network`) or an operator.

    depth: number of levels of blocks that are drawn unfolded; by default as many as give a drawing
    of a page or two. Deterministic: equal reports give equal bytes.
    """
    nodes = report["nodes"]
    drawn = [_NodeBox(node, tuple(node_lines(node, nodes))) for node in fold(nodes, depth)]
    boxes = {item.node["name"]: item.box for item in drawn}
    edges = list(_edges([item.node for item in drawn]))
    layout = in_columns(lay_out([*boxes.values()], edges), [*boxes.values()], edges)
    title, size = network_title(report), size_text(nodes)
    width = max(layout.width, _MIN_WIDTH, text_width(title, TITLE_SIZE))
    legend, top = _legend(drawn, width)
    body = [
        *_groups(boxes, layout),
        *(part for route in layout.routes for part in _edge(route)),
        *(part for item in drawn for part in _node(item, layout.corners[item.node["name"]])),
        *(part for item in drawn for part in _shapes(item, layout, edges)),
    ]
    left = _MARGIN + (width - layout.width) / 2
    moved = element("g", "\n" + "\n".join(body) + "\n", transform=f"translate({points(left, top)})")
    return document(
        width + 2 * _MARGIN,
        top + layout.height + 2 * _MARGIN,
        title,
        [
            text(title, _MARGIN, _MARGIN + 10, "title"),
            text(size, _MARGIN, _MARGIN + 26, "faint"),
            *legend,
            moved,
        ],
    )


@dataclass(frozen=True)
class _NodeBox:
    """A node with the lines of its box: name, operator, then details in small type."""

    node: Report
    lines: tuple[str, ...]

    @property
    def box(self) -> Box:
        """Box that fits the lines. The low weight of inputs moves them beside the network."""
        sizes = [SMALL_SIZE if index > 1 else FONT_SIZE for index in range(len(self.lines))]
        weight = 0.05 if self.node["kind"] == "input" else 1.0
        widths = [text_width(*pair) for pair in zip(self.shown, sizes, strict=True)]
        strip = _STRIP + 2 if self.node["kind"] == BLOCK else 0.0
        height = len(self.lines) * _LINE + 9 + strip
        return Box(self.node["name"], max(widths) + 20, height, weight)

    @property
    def shown(self) -> list[str]:
        """The lines as they are drawn: long ones without their middle."""
        return [shortened(line, _MAX_LETTERS) for line in self.lines]

    @property
    def look(self) -> Attributes:
        """Attributes of the rectangle."""
        kind = self.node["kind"]
        if kind == "input":
            return _INPUT
        return _FOLDED if kind == BLOCK else _family_look(self.node["family"], kind)


def _family_look(family: str, kind: str = "operator") -> Attributes:
    """Return the attributes of an operator's box; dashed if it has no connected inputs."""
    colour = FAMILY_COLOURS[family]
    look: Attributes = {"rx": 4.0, "fill": colour, "stroke": colour, "stroke_width": 1.4}
    if kind == "unapplied":
        return {**look, "fill_opacity": "0.04", "stroke_dasharray": "5 3"}
    return {**look, "fill_opacity": "0.16"}


def _edges(nodes: Sequence[Report]) -> Iterator[Edge]:
    """Yield one edge per tensor that a drawn node reads from another."""
    outputs = {node["name"]: len(node["outputs"]) for node in nodes}
    for node in nodes:
        for part in node["inputs"]:
            if part["node"] in outputs:
                port = (part["output"] + 1) / (outputs[part["node"]] + 1)
                yield Edge(part["node"], node["name"], port)


def _edge(route: Sequence[Point]) -> Iterator[str]:
    """Yield an edge with its arrow: straight down or across, a bend with vertical ends else."""
    path = f"M {points(*route[0])}"
    for (x, y), (next_x, next_y) in pairwise(route):
        if x == next_x or y == next_y:
            path += f" L {points(next_x, next_y)}"
        else:
            middle = (y + next_y) / 2
            path += f" C {points(x, middle, next_x, middle, next_x, next_y)}"
    yield element("path", class_="line", d=path, fill="none", stroke=LINE, stroke_width=1.2)
    # Not a marker: some viewers draw none.
    x, y = route[-1]
    tip = f"M {points(x - 3, y - 6.5)} L {points(x, y)} L {points(x + 3, y - 6.5)} Z"
    yield element("path", class_="tip", d=tip, fill=LINE)


def _node(item: _NodeBox, corner: Point) -> Iterator[str]:
    box, (x, y) = item.box, corner
    details = [f"{name}: {value}" for name, value in item.node["parameters"].items()]
    told = element("title", clean("\n".join((*item.lines[:2], *details))))
    yield rectangle(told, x=x, y=y, width=box.width, height=box.height, **item.look)
    if item.node["kind"] == BLOCK:
        yield from _strip(item.node["families"], box, corner)
    for index, line in enumerate(item.shown):
        style = "bold" if index == 0 else "faint" if index > 1 else "label"
        yield text(line, x + box.width / 2, y + (index + 1) * _LINE, style, "middle")


def _strip(families: Mapping[str, int], box: Box, corner: Point) -> Iterator[str]:
    """Yield the share of each family of the layers of a folded block, at its lower edge."""
    x, y = corner[0] + 6, corner[1] + box.height - _STRIP - 4
    total = sum(families.values())
    for family in filter(families.__contains__, FAMILY_COLOURS):
        width = (box.width - 12) * families[family] / total
        told = element("title", clean(f"{families[family]} of {total} layers: {family}"))
        yield rectangle(told, x=x, y=y, width=width, height=_STRIP, fill=FAMILY_COLOURS[family])
        x += width


def _shapes(item: _NodeBox, layout: NetworkLayout, edges: Sequence[Edge]) -> Iterator[str]:
    """Yield the shape of every output, at the start of its edges and beside them."""
    name, box = item.node["name"], item.box
    x, y = layout.corners[name]
    bends: dict[float, list[float]] = {}
    for edge, route in zip(edges, layout.routes, strict=True):
        if edge.source == name:
            bends.setdefault(edge.port, []).append(route[1][0] - route[0][0])
    outputs = item.node["outputs"]
    for index, output in enumerate(outputs, 1):
        port = index / (len(outputs) + 1)
        side = -1 if min(bends.get(port, [0.0])) > 0 else 1
        start = x + box.width * port + side * 5
        anchor = "start" if side > 0 else "end"
        yield text(shape_text(output["shape"]), start, y + box.height + _SHAPE, "faint", anchor)


@dataclass(frozen=True)
class _Area:
    """Rectangle from its upper left to its lower right corner."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Area) -> bool:
        """Return whether the two rectangles overlap."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def _groups(boxes: Mapping[str, Box], layout: NetworkLayout) -> Iterator[str]:
    """Yield a background behind the boxes of each block in each column, unless it would overlap
    another box.
    """
    areas = {}
    for name, box in boxes.items():
        x, y = layout.corners[name]
        areas[name] = _Area(left=x, top=y, right=x + box.width, bottom=y + box.height)
    drawn: dict[tuple[str, int], _Area] = {}
    for level in range(1, _GROUP_LEVELS + 1):
        members: dict[tuple[str, int], list[str]] = {}
        for name in boxes:
            blocks = name.rstrip("/").split("/")
            if len(blocks) > level:
                group = "/".join(blocks[:level])
                members.setdefault((group, layout.column(name)), []).append(name)
        for key, names in members.items():
            ground = _ground([areas[name] for name in names], _GROUP_LEVELS + 1 - level)
            beside = [area for name, area in areas.items() if name not in names]
            beside += [
                area for (name, _), area in drawn.items() if not key[0].startswith(f"{name}/")
            ]
            if len(names) > 1 and not any(map(ground.meets, beside)):
                drawn[key] = ground
                yield from _group(key[0], ground)


def _ground(areas: Sequence[_Area], pads: int) -> _Area:
    """Return the bounding rectangle of the areas, padded for `pads` levels of group names."""
    pad = pads * _GROUP_PAD
    return _Area(
        left=min(area.left for area in areas) - pad,
        top=min(area.top for area in areas) - pads * _GROUP_NAME,
        right=max(area.right for area in areas) + pad,
        # The shapes of outputs are below the boxes.
        bottom=max(area.bottom for area in areas) + _SHAPE + pads * _GROUP_FOOT,
    )


def _group(name: str, area: _Area) -> Iterator[str]:
    yield rectangle(
        x=area.left,
        y=area.top,
        width=area.right - area.left,
        height=area.bottom - area.top,
        class_="line",
        rx=6.0,
        fill=LINE,
        fill_opacity="0.08",
        stroke=LINE,
        stroke_width=1.0,
        stroke_opacity="0.5",
    )
    yield text(name, area.left + 5, area.top + 9, "faint")


def _legend(drawn: Sequence[_NodeBox], width: float) -> tuple[list[str], float]:
    """Return the swatches with their labels, in rows, and the upper edge of the drawing below."""
    nodes = [item.node for item in drawn]
    kinds = {node["kind"] for node in nodes}
    families = drawn_families(nodes)
    swatches = {family: _family_look(family) for family in families}
    if "unapplied" in kinds:
        swatches = {f"{each}, not connected": _family_look(each, "unapplied") for each in families}
    swatches |= {"folded block": _FOLDED} if BLOCK in kinds else {}
    swatches |= {"input": _INPUT} if "input" in kinds else {}
    parts: list[str] = []
    x, y = _MARGIN, 2.6 * _MARGIN
    for meaning, look in swatches.items():
        room = 28 + text_width(meaning) + 16
        if x > _MARGIN and x + room > _MARGIN + width:
            x, y = _MARGIN, y + _LEGEND_ROW
        parts.append(rectangle(x=x, y=y, width=20.0, height=13.0, **{**look, "rx": 4.0}))
        parts.append(text(meaning, x + 28, y + 11))
        x += room
    return parts, y + _LEGEND_ROW + _MARGIN
