"""Folding of blocks, and layouts in several columns."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxrun.config.bundled import find_config
from mxrun.inspection.network_description import describe_network
from mxrun.preparation.planning import load
from mxrun.report.layout import Box, Edge, lay_out
from mxrun.report.layout_columns import in_columns
from mxrun.report.network_fold import BLOCK, deepest, drawn_nodes, fold, network_size

Nodes = list[dict[str, Any]]


def node(
    name: str, *sources: str, kind: str = "operator", operator: str = "relu"
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "operator": operator,
        "family": "activation",
        "parameters": {},
        "outputs": [{"name": "output", "shape": [2, 3]}],
        "inputs": [
            {
                "argument": f"arg{i}",
                "auxiliary": False,
                "node": source,
                "output": 0,
                "shape": [4, 5],
            }
            for i, source in enumerate(sources)
        ],
    }


def sources(each: dict[str, Any]) -> list[str]:
    return [part["node"] for part in each["inputs"]]


def names(nodes: Nodes) -> list[str]:
    return [each.get("title", each["name"]) for each in nodes]


def chain(*layers: str) -> Nodes:
    return [
        node("data", kind="input"),
        *(node(name, source) for source, name in pairwise(("data", *layers))),
    ]


def test_a_block_is_one_node_with_its_size() -> None:
    weight = node("w", kind="variable")
    nodes = [weight, *chain("a/x", "a/y", "b")]
    nodes[2]["inputs"] += node("", "w")["inputs"]
    nodes[3]["inputs"] += node("", "w")["inputs"]
    _, block, last = fold(nodes, 1)
    assert (block["name"], block["title"], block["kind"]) == ("a/", "a", BLOCK)
    assert (block["count"], block["layers"], block["elements"]) == (1, 2, 20)
    assert block["operators"] == {"relu": 2}
    assert sources(block) == ["data"]
    assert sources(last) == ["a/"]
    assert fold(nodes, 2) == drawn_nodes(nodes)
    assert network_size(nodes) == (3, 20)


def test_equal_blocks_in_a_row_are_one_node_with_a_count() -> None:
    layers = [f"s/u{number}/{layer}" for number in range(1, 5) for layer in ("x", "y")]
    nodes = [*chain(*layers), node("head", layers[-1])]
    assert names(fold(nodes, 2)) == ["data", "s/u1 … u4", "head"]
    (_, block, head) = fold(nodes, 2)
    assert (block["count"], block["layers"]) == (4, 8)
    assert sources(head) == [block["name"]]
    # A block that differs, or whose inside is read by another, ends the row.
    nodes[5]["operator"] = "tanh"
    assert names(fold(nodes, 2)) == ["data", "s/u1 … u2", "s/u3", "s/u4", "head"]
    nodes[5]["operator"] = "relu"
    nodes[-1] = node("head", layers[-1], layers[3])
    assert names(fold(nodes, 2)) == ["data", "s/u1 … u2", "s/u3 … u4", "head"]


def test_a_block_that_a_path_leaves_and_enters_again_is_not_folded() -> None:
    nodes = chain("a/x", "between", "a/y", "b/x", "b/y")
    assert names(fold(nodes, 1)) == ["data", "a/x", "between", "a/y", "b"]


def test_blocks_that_read_each_other_are_folded_one_level_deeper() -> None:
    nodes = [
        *chain("a/1/x", "a/1/y"),
        *(node("b/1/x", "a/1/y"), node("b/1/y", "b/1/x")),
        *(node("a/2/x", "b/1/y"), node("a/2/y", "a/2/x")),
    ]
    assert names(fold(nodes, 1)) == ["data", "a/1", "b/1", "a/2"]


def test_each_output_that_is_read_is_an_output_of_the_block() -> None:
    nodes = [*chain("a/x", "a/y", "a/z"), node("b", "a/x", "a/z"), node("c", "a/z", "a/x")]
    (_, block, first, second) = fold(nodes, 1)
    assert len(block["outputs"]) == 2
    assert [(part["node"], part["output"]) for part in first["inputs"]] == [("a/", 0), ("a/", 1)]
    assert [(part["node"], part["output"]) for part in second["inputs"]] == [("a/", 1), ("a/", 0)]


@st.composite
def networks(draw: st.DrawFn) -> Nodes:
    """Networks whose names say nothing about their wiring."""
    count = draw(st.integers(1, 14))
    paths = st.lists(st.sampled_from("ab"), min_size=0, max_size=3)
    names = ["/".join((*draw(paths), f"n{number}")) for number in range(count)]
    return [
        node(
            name,
            *(draw(st.lists(st.sampled_from(names[:number]), max_size=3)) if number else ()),
        )
        for number, name in enumerate(names)
    ]


@settings(max_examples=150, deadline=None)
@given(networks(), st.integers(1, 4))
def test_any_network_folds_to_one_without_cycles(nodes: Nodes, depth: int) -> None:
    folded = fold(nodes, depth)
    assert sum(each.get("layers", 1) for each in folded) == len(nodes)
    before: set[str] = set()
    outputs = {each["name"]: len(each["outputs"]) for each in folded}
    for each in folded:
        for part in each["inputs"]:
            assert part["node"] in before
            assert part["output"] < outputs[part["node"]]
        before.add(each["name"])
    assert len(before) == len(folded)


@pytest.mark.parametrize(
    "name",
    ["resnet50_imagenet", "resnet152_imagenet", "densenet121_imagenet", "mobilenetv2_imagenet"],
)
def test_large_networks_are_folded_and_lose_nothing(name: str) -> None:
    nodes = describe_network(load(find_config(name), needs_device=False))["nodes"]
    layers, elements = network_size(nodes)
    assert len(fold(nodes)) <= 40 < len(drawn_nodes(nodes))
    for depth in range(1, deepest(nodes)):
        blocks = [each for each in fold(nodes, depth) if each["kind"] == BLOCK]
        others = {each["name"] for each in fold(nodes, depth)} & {each["name"] for each in nodes}
        alone = network_size(
            [each for each in nodes if each["name"] in others or each["kind"] == "variable"]
        )
        assert sum(each["layers"] for each in blocks) + alone[0] == layers
        assert sum(each["elements"] for each in blocks) + alone[1] == elements


@settings(max_examples=40, deadline=None)
@given(st.integers(20, 60), st.lists(st.tuples(st.integers(0, 59), st.integers(1, 30)), max_size=6))
def test_columns_keep_boxes_apart_and_edges_whole(
    count: int, shortcuts: list[tuple[int, int]]
) -> None:
    boxes = [Box(f"n{number}", 100.0 + number, 50.0) for number in range(count)]
    edges = [Edge(one.name, other.name) for one, other in pairwise(boxes)]
    edges += [
        Edge(f"n{start}", f"n{start + span}") for start, span in shortcuts if start + span < count
    ]
    layout = in_columns(lay_out(boxes, edges), boxes, edges)
    assert layout.height < 1.5 * layout.width + 1200
    assert len(set(layout.columns)) > 1
    areas = [(*layout.corners[box.name], box) for box in boxes]
    for _, y, box in areas:
        assert layout.ranks[layout.rank[box.name]] == pytest.approx((y, y + 50))
    for (x, y, box), (other_x, other_y, other) in combinations(areas, 2):
        beside = x + box.width <= other_x or other_x + other.width <= x
        assert beside or y + box.height <= other_y or other_y + other.height <= y
    for edge, route in zip(edges, layout.routes, strict=True):
        source, target = layout.corners[edge.source], layout.corners[edge.target]
        assert route[0][1] == pytest.approx(source[1] + 50)
        assert route[-1][1] == pytest.approx(target[1])
        assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in route)


def test_a_low_network_has_one_column() -> None:
    boxes = [Box(f"n{number}", 100, 50) for number in range(8)]
    edges = [Edge(one.name, other.name) for one, other in pairwise(boxes)]
    layout = lay_out(boxes, edges)
    assert in_columns(layout, boxes, edges).corners == layout.corners
