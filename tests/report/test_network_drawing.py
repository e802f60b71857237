"""Drawings of networks: rows in a terminal, ranks in SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations
from typing import Any

import pytest
from consoles import printed
from hypothesis import given, settings
from hypothesis import strategies as st

from mxrun.report.layout import Box, Edge, NetworkLayout, lay_out
from mxrun.report.network import network_parts, shape_text, wiring
from mxrun.report.network_svg import network_svg


def node(name: str, *sources: str, kind: str = "operator", outputs: int = 1) -> dict[str, Any]:
    """A node that reads the first output of others."""
    return {
        "name": name,
        "kind": kind,
        "operator": "null" if kind in ("input", "variable") else "Activation",
        "family": "activation",
        "parameters": {},
        "outputs": [{"name": f"output{i}", "shape": [2, 3]} for i in range(outputs)],
        "inputs": [
            {
                "argument": f"arg{i}",
                "auxiliary": False,
                "node": source,
                "output": 0,
                "shape": [2, 3],
            }
            for i, source in enumerate(sources)
        ],
    }


def report(*nodes: dict[str, Any], name: str = "net") -> dict[str, Any]:
    return {"kind": "network", "name": name, "batch_size": 2, "nodes": list(nodes)}


def rendered(what: dict[str, Any], width: int = 100) -> list[str]:
    return [line.rstrip() for line in printed(*network_parts(what), width=width).splitlines()]


@pytest.mark.parametrize(
    ("nodes", "lanes"),
    [
        ([node("a"), node("b", "a"), node("c", "b")], ["●", "●", "●"]),
        ([node("a"), node("b", "a"), node("c", "b", "a")], ["●", "├─●", "●─╯"]),
        (
            [node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c")],
            ["●", "├─●", "● │", "●─╯"],
        ),
        (
            [node("a"), node("b", "a"), node("c", "a"), node("d", "a", "c"), node("e", "b", "d")],
            ["●", "├─●", "├─│─●", "●─│─╯", "●─╯"],
        ),
        (
            [node("a"), node("b"), node("c"), node("d", "a", "b", "c"), node("e", "b", "d")],
            ["●", "│ ●", "│ │ ●", "●─┼─╯", "●─╯"],
        ),
        (
            [node("a"), node("b"), node("c"), node("d", "a", "b", "c")],
            ["●", "│ ●", "│ │ ●", "●─┴─╯"],
        ),
        ([node("a"), node("b", "a", "a")], ["●", "●"]),
        ([node("a"), node("b"), node("c", "a")], ["●", "│ ●", "●"]),
    ],
)
def test_lanes_show_who_reads_what(nodes: list[dict[str, Any]], lanes: list[str]) -> None:
    assert list(wiring(nodes)) == lanes


def test_rows_show_groups_shapes_and_variables() -> None:
    weight = node("a/b/conv_arg1", kind="variable")
    shared = node("w", kind="variable")
    conv = node("a/b/conv", "data", "a/b/conv_arg1", "w")
    lines = rendered(
        report(node("data", kind="input"), weight, shared, conv, node("a/relu", conv["name"]))
    )
    assert lines[0].strip() == "net, batch 2"
    assert lines[4] == "  ○   data                    2x3"
    assert lines[5] == "  ●   a/b/conv   Activation   2x3      arg1, w 2x3"
    assert lines[6] == "  ●    /relu     Activation   2x3"


def test_names_are_no_markup() -> None:
    assert any("[red]x" in line for line in rendered(report(node("[red]x"))))


@pytest.mark.parametrize(
    ("shape", "text"),
    [(None, "?"), ([], "scalar"), ([3], "3"), ([2, None, 4], "2x?x4")],
)
def test_shapes(shape: list[int | None] | None, text: str) -> None:
    assert shape_text(shape) == text


def areas(layout: NetworkLayout, boxes: list[Box]) -> list[tuple[float, float, float, float]]:
    corners = [(*layout.corners[box.name], box) for box in boxes]
    return [(x, y, x + box.width, y + box.height) for x, y, box in corners]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], list[Edge]]:
    count = draw(st.integers(1, 12))
    sizes = st.floats(20, 200)
    boxes = [Box(f"n{i}", draw(sizes), draw(sizes)) for i in range(count)]
    edges = []
    for target in range(1, count):
        sources = draw(st.lists(st.integers(0, target - 1), max_size=3))
        edges += [Edge(f"n{source}", f"n{target}") for source in sources]
    return boxes, edges


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_boxes_do_not_overlap_and_edges_run_down(graph: tuple[list[Box], list[Edge]]) -> None:
    boxes, edges = graph
    layout = lay_out(boxes, edges)
    assert lay_out(boxes, edges) == layout
    rectangles = areas(layout, boxes)
    for (l1, t1, r1, b1), (l2, t2, r2, b2) in combinations(rectangles, 2):
        assert r1 <= l2 or r2 <= l1 or b1 <= t2 or b2 <= t1
    for left, top, right, bottom in rectangles:
        assert left >= -1e-6
        assert top >= 0
        assert right <= layout.width + 1e-6
        assert bottom <= layout.height + 1e-6
    for edge, route in zip(edges, layout.routes, strict=True):
        heights = [y for _, y in route]
        assert heights == sorted(heights)
        assert len(route) % 2 == 0
        end_x, end_y = route[-1]
        assert route[0][1] == pytest.approx(bottom_of(edge.source, layout, boxes))
        corner_x, corner_y = layout.corners[edge.target]
        width = next(box.width for box in boxes if box.name == edge.target)
        assert end_y == corner_y
        assert corner_x <= end_x <= corner_x + width


def bottom_of(name: str, layout: NetworkLayout, boxes: list[Box]) -> float:
    return layout.corners[name][1] + next(box.height for box in boxes if box.name == name)


def test_a_chain_is_straight_and_a_shortcut_passes_beside_it() -> None:
    names = ["data", "relu", "conv1", "conv2", "add"]
    boxes = [Box(name, 100, 40) for name in names]
    edges = [
        *(Edge("data", "relu"), Edge("relu", "conv1"), Edge("conv1", "conv2")),
        *(Edge("conv2", "add"), Edge("relu", "add")),
    ]
    layout = lay_out(boxes, edges)
    middles = {name: x + 50 for name, (x, _) in layout.corners.items()}
    assert middles["data"] == middles["relu"]
    assert middles["conv1"] == middles["conv2"]
    passing = layout.routes[-1][1:-1]
    assert len(passing) == 4
    assert all(abs(x - middles["conv1"]) > 50 for x, _ in passing)


def test_an_input_stands_just_above_its_reader() -> None:
    boxes = [Box(name, 50, 20) for name in ("data", "a", "b", "label", "loss")]
    edges = [Edge("data", "a"), Edge("a", "b"), Edge("b", "loss"), Edge("label", "loss")]
    corners = lay_out(boxes, edges).corners
    assert corners["label"][1] == corners["b"][1]


def test_nothing_is_drawn_of_nothing() -> None:
    layout = lay_out([], [])
    assert (layout.width, layout.height, layout.routes) == (0, 0, ())


def test_any_name_gives_a_well_formed_drawing() -> None:
    strange = '<a href="x">&amp;\x00\x1b\ud800]]></a>'
    what = report(node("data", kind="input"), node(strange, "data"), name=strange)
    text = network_svg(what)
    assert text == network_svg(what)
    root = ElementTree.fromstring(text.encode("utf-8"))
    shown = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert '<a href="x">&amp;???]]></a>' in shown


def test_each_output_has_a_shape_of_its_own() -> None:
    split = node("split", "data", outputs=2)
    split["outputs"][1]["shape"] = [7]
    what = report(node("data", kind="input"), split, node("relu", "split"))
    shown = ElementTree.fromstring(network_svg(what)).itertext()
    assert [text for text in shown if text in ("2x3", "7")] == ["2x3", "2x3", "7", "2x3"]
