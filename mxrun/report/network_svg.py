"""SVG drawing of a network: boxes in ranks, edges with the shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mxrun.report.layout import Box, Edge, Point, lay_out
from mxrun.report.network import drawn_nodes, network_title, node_lines, shape_text
from mxrun.report.svg import COLOURS, clean, document, element, points, text, text_width

Report = Mapping[str, Any]

_MARGIN = 24.0
_LINE = 15.0
_SMALL = 10.0
_GROUP_LEVELS = 2
_GROUP_PAD = 10.0
_GROUP_NAME = 12.0
_LEGEND_ROW = 22.0
_MIN_WIDTH = 420.0
_STYLE = """
.box { stroke-width: 1.4px; fill-opacity: 0.16; }
.unapplied { stroke-dasharray: 5 3; fill-opacity: 0.04; }
.input { stroke: var(--ink); fill: var(--ink); fill-opacity: 0.06; }
.tip { fill: var(--line); }
.group { fill: var(--line); fill-opacity: 0.08; stroke: var(--line); stroke-opacity: 0.5; }
"""
_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7"'
    ' markerHeight="7" orient="auto"><path class="tip" d="M 0 1 L 8 4 L 0 7 z"/></marker></defs>'
)


@dataclass(frozen=True)
class _NodeBox:
    """A node with the lines of its box: name, operator, then variables in small type."""

    node: Report
    lines: tuple[str, ...]

    @property
    def box(self) -> Box:
        """Box that fits the lines. The low weight of inputs moves them beside the network."""
        sizes = (12.0, 12.0, *(_SMALL for _ in self.lines[2:]))
        weight = 0.05 if self.node["kind"] == "input" else 1.0
        widths = [text_width(*pair) for pair in zip(self.lines, sizes, strict=False)]
        return Box(self.node["name"], max(widths) + 20, len(self.lines) * _LINE + 9, weight)

    @property
    def meaning(self) -> str:
        """Label of this kind of node in the legend."""
        family = str(self.node["family"])
        meanings = {"input": "input", "unapplied": f"{family}, not connected"}
        return meanings.get(str(self.node["kind"]), family)

    def colour(self, colours: Mapping[str, str]) -> dict[str, str]:
        """Return the attributes of the rectangles in drawing and legend."""
        if self.node["kind"] == "input":
            return {"class_": "box input", "rx": "14"}
        colour = colours[self.node["family"]]
        unapplied = " unapplied" if self.node["kind"] == "unapplied" else ""
        return {"class_": f"box{unapplied}", "rx": "4", "stroke": colour, "fill": colour}


def network_svg(report: Report) -> str:
    """Return the SVG document. Deterministic: equal reports give equal bytes."""
    nodes = drawn_nodes(report["nodes"])
    drawn = [_NodeBox(node, tuple(node_lines(node, report["nodes"]))) for node in nodes]
    boxes = {item.node["name"]: item.box for item in drawn}
    colours = _colours(nodes)
    layout = lay_out(list(boxes.values()), list(_edges(nodes)))
    width = max(layout.width, _MIN_WIDTH)
    legend, top = _legend(drawn, colours, width)
    body = [
        *_groups(boxes, layout.corners),
        *(_curve(route) for route in layout.routes),
        *(part for item in drawn for part in _node(item, layout.corners, colours)),
        *_shapes(drawn, layout.corners),
    ]
    left = _MARGIN + (width - layout.width) / 2
    moved = element("g", "\n" + "\n".join(body) + "\n", transform=f"translate({points(left, top)})")
    title = network_title(report)
    return document(
        width + 2 * _MARGIN,
        top + layout.height + 2 * _MARGIN,
        title,
        [_ARROW, text(title, _MARGIN, _MARGIN + 10, "title"), *legend, moved],
        _STYLE,
    )


def _colours(nodes: Sequence[Report]) -> dict[str, str]:
    """Return a colour per family, in order of appearance."""
    families = dict.fromkeys(node["family"] for node in nodes if node["kind"] != "input")
    return {family: COLOURS[index % len(COLOURS)] for index, family in enumerate(families)}


def _edges(nodes: Sequence[Report]) -> Iterator[Edge]:
    """Yield one edge per tensor that a drawn node reads from another."""
    outputs = {node["name"]: len(node["outputs"]) for node in nodes}
    for node in nodes:
        for part in node["inputs"]:
            if part["node"] in outputs:
                port = (part["output"] + 1) / (outputs[part["node"]] + 1)
                yield Edge(part["node"], node["name"], port)


def _curve(route: Sequence[Point]) -> str:
    """Return an edge: vertical at both ends of every bend, straight where it passes a rank."""
    path = f"M {points(*route[0])}"
    for index, ((x, y), (next_x, next_y)) in enumerate(pairwise(route)):
        if index % 2 or x == next_x:
            path += f" L {points(next_x, next_y)}"
        else:
            middle = (y + next_y) / 2
            path += f" C {points(x, middle, next_x, middle, next_x, next_y)}"
    return element("path", class_="line", d=path, marker_end="url(#arrow)")


def _node(
    item: _NodeBox, corners: Mapping[str, Point], colours: Mapping[str, str]
) -> Iterator[str]:
    box, (x, y) = item.box, corners[item.node["name"]]
    details = [f"{name}: {value}" for name, value in item.node["parameters"].items()]
    yield element(
        "rect",
        element("title", clean("\n".join((*item.lines[:2], *details)))),
        x=x,
        y=y,
        width=box.width,
        height=box.height,
        **item.colour(colours),
    )
    for index, line in enumerate(item.lines):
        class_ = "bold" if index == 0 else "faint" if index > 1 else "label"
        base = y + (index + 1) * _LINE
        yield text(line, x + box.width / 2, base, class_, "middle")


def _shapes(drawn: Sequence[_NodeBox], corners: Mapping[str, Point]) -> Iterator[str]:
    """Yield the shape of every output, at the start of its edges."""
    for item in drawn:
        box, (x, y) = item.box, corners[item.node["name"]]
        outputs = item.node["outputs"]
        for index, output in enumerate(outputs, 1):
            port = x + box.width * index / (len(outputs) + 1)
            yield text(shape_text(output["shape"]), port + 5, y + box.height + 13, "faint")


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


def _groups(boxes: Mapping[str, Box], corners: Mapping[str, Point]) -> Iterator[str]:
    """Yield a background behind the boxes of each block, unless it would overlap another box."""
    areas = {}
    for name, box in boxes.items():
        x, y = corners[name]
        areas[name] = _Area(x, y, x + box.width, y + box.height)
    drawn: dict[str, _Area] = {}
    for level in range(1, _GROUP_LEVELS + 1):
        members: dict[str, list[str]] = {}
        for name in boxes:
            blocks = name.split("/")
            if len(blocks) > level:
                members.setdefault("/".join(blocks[:level]), []).append(name)
        for group, names in members.items():
            ground = _ground([areas[name] for name in names], _GROUP_LEVELS + 1 - level)
            beside = [area for name, area in areas.items() if name not in names]
            beside += [area for name, area in drawn.items() if not group.startswith(f"{name}/")]
            if len(names) > 1 and not any(map(ground.meets, beside)):
                drawn[group] = ground
                yield from _group(group, ground)


def _ground(areas: Sequence[_Area], pads: int) -> _Area:
    """Return the bounding rectangle of the areas, padded for `pads` levels of group names."""
    pad = pads * _GROUP_PAD
    return _Area(
        min(area.left for area in areas) - pad,
        min(area.top for area in areas) - pads * _GROUP_NAME,
        max(area.right for area in areas) + pad,
        max(area.bottom for area in areas) + pad / 2,
    )


def _group(name: str, area: _Area) -> Iterator[str]:
    yield element(
        "rect",
        x=area.left,
        y=area.top,
        width=area.right - area.left,
        height=area.bottom - area.top,
        rx="6",
        class_="group",
    )
    yield text(name, area.left + 5, area.top + 10, "faint")


def _legend(
    drawn: Sequence[_NodeBox], colours: Mapping[str, str], width: float
) -> tuple[list[str], float]:
    """Return the swatches with their labels, in rows, and the upper edge of the drawing below."""
    swatches: dict[str, dict[str, str]] = {}
    for item in drawn:
        swatches.setdefault(item.meaning, item.colour(colours))
    parts: list[str] = []
    x, y = _MARGIN, 2 * _MARGIN
    for meaning, colour in swatches.items():
        room = 28 + text_width(meaning) + 16
        if x > _MARGIN and x + room > _MARGIN + width:
            x, y = _MARGIN, y + _LEGEND_ROW
        parts.append(element("rect", x=x, y=y, width=20.0, height=13.0, **{**colour, "rx": "4"}))
        parts.append(text(meaning, x + 28, y + 11))
        x += room
    return parts, y + _LEGEND_ROW + _MARGIN
