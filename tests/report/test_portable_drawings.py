"""Drawings for viewers without style sheets: literal colours, texts that fit, sizes of pages."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import combinations
from operator import mul
from typing import Any

import pytest
from consoles import printed
from memory_reports import memory_of

from mxrun import library
from mxrun.config.bundled import bundled_configs, find_config
from mxrun.graph.graph import MemoryClass
from mxrun.inspection.network_description import describe_network
from mxrun.operator.family import OperatorFamily
from mxrun.operator.register import OPERATORS
from mxrun.preparation.planning import load
from mxrun.report.curves_svg import curves_svg
from mxrun.report.memory_html import memory_html
from mxrun.report.memory_svg import memory_svg
from mxrun.report.network import network_parts
from mxrun.report.network_dot import network_dot
from mxrun.report.network_fold import BLOCK, fold
from mxrun.report.network_svg import network_svg
from mxrun.report.palette import CURVE_COLOURS, FAMILY_COLOURS, MEMORY_COLOURS

SVG = "{http://www.w3.org/2000/svg}"
COLOUR = re.compile("#[0-9a-f]{6}")
SHAPES = {"rect", "path", "circle", "line", "text"}
# Widths of characters of DejaVu Sans Mono, the widest of the fonts, as fractions of the font size.
LETTER = 0.6025
# Page of A4 at 96 dots an inch is 794 x 1123; a drawing takes one or two.
MAX_WIDTH, MAX_HEIGHT = 1800, 1500
# Simulation of dichromats in linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
SIGHTS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}


def described(name: str) -> dict[str, Any]:
    return describe_network(load(find_config(name), needs_device=False))


def curves() -> dict[str, Any]:
    metrics = [{"name": "loss", "train": [2.0, 0.001], "eval": [1.0, None]}]
    run = {"name": "net", "run_dir": "runs/net", "notes": ["a note"], "epochs": [1, 2]}
    run |= {"learning_rate": [0.1, 0.01], "metrics": metrics}
    return {"kind": "curves", "runs": [run, {**run, "name": "other"}]}


@pytest.fixture(scope="module")
def drawings() -> dict[str, str]:
    memory = memory_of(find_config("digits_lenet"), threads=1, measured=False).to_json()
    page = memory_html(memory)
    single = {**curves(), "runs": curves()["runs"][:1]}
    return {
        "small network": network_svg(described("digits_lenet")),
        "folded network": network_svg(described("resnet50_imagenet")),
        "unfolded network": network_svg(described("resnet20_cifar10"), 9),
        "curves": curves_svg(single),
        "several curves": curves_svg(curves()),
        "memory": memory_svg(memory),
        "page": page[page.index("<svg") : page.index("</svg>") + len("</svg>")],
    }


def inherited(root: ElementTree.Element) -> Iterator[tuple[ElementTree.Element, dict[str, str]]]:
    """Yield every element with the attributes that hold for it: its own or its ancestors'."""

    def walk(
        element: ElementTree.Element, outer: dict[str, str]
    ) -> Iterator[tuple[ElementTree.Element, dict[str, str]]]:
        held = {**outer, **element.attrib}
        yield element, held
        for child in element:
            yield from walk(child, held)

    return walk(root, {})


def test_every_element_has_literal_colours_and_fonts(drawings: dict[str, str]) -> None:
    for name, drawing in drawings.items():
        assert "var(" not in drawing, name
        assert "currentColor" not in drawing, name
        seen = set()
        for element, held in inherited(ElementTree.fromstring(drawing)):
            kind = element.tag.removeprefix(SVG)
            seen.add(kind)
            assert "style" not in element.attrib
            if kind not in SHAPES:
                continue
            fill, stroke = held.get("fill"), held.get("stroke")
            if kind == "line":
                assert stroke is not None
            else:
                assert fill is not None, f"{name}: {kind} is black in some viewers"
            assert fill is None or fill == "none" or COLOUR.fullmatch(fill)
            assert stroke is None or COLOUR.fullmatch(stroke)
            assert fill != "none" or stroke is not None
            if kind == "text":
                assert float(held["font-size"]) >= 10
                assert held["font-family"].endswith("monospace")
        assert {"text", "rect", "title", "style"} <= seen <= {*SHAPES, "svg", "g", "title", "style"}


def test_style_sheets_only_add_dark_mode_and_the_pointer(drawings: dict[str, str]) -> None:
    """They name the drawing's class, so that they change nothing else of a page."""
    for drawing in drawings.values():
        (style,) = ElementTree.fromstring(drawing).iter(f"{SVG}style")
        dark = re.compile(r"@media \(prefers-color-scheme: dark\) \{(.*?)\n\}", re.S)
        rules = dark.sub("", style.text or "").strip()
        assert rules in ("", ".mxrun .block:hover { stroke: #808080; stroke-width: 1.5px; }")
        (inner,) = dark.findall(style.text or "")
        assert all(line.strip().startswith(".mxrun .") for line in inner.strip().splitlines())
        assert 'class="mxrun"' in drawing


def extent(element: ElementTree.Element, held: dict[str, str]) -> tuple[float, float]:
    """Left and right side of a text in the widest font."""
    width = len(element.text or "") * float(held["font-size"]) * LETTER
    x = float(element.attrib["x"])
    shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[held["text-anchor"]]
    return x - shift * width, x + (1 - shift) * width


@pytest.mark.parametrize("name", bundled_configs())
def test_bundled_networks_fit_a_page_or_two(name: str) -> None:
    report = described(name)
    root = ElementTree.fromstring(network_svg(report))
    assert float(root.attrib["width"]) <= MAX_WIDTH
    assert float(root.attrib["height"]) <= MAX_HEIGHT
    lines = [line for part in network_parts(report) for line in printed(part).splitlines()]
    assert len(lines) <= 70
    assert network_svg(report) == network_svg(described(name))


@pytest.mark.parametrize("name", ["digits_lenet", "resnet50_imagenet", "densenet121_imagenet"])
def test_texts_fit_their_boxes_and_the_drawing(name: str) -> None:
    root = ElementTree.fromstring(network_svg(described(name)))
    (moved,) = root.iter(f"{SVG}g")
    boxes = [each for each in moved.iter(f"{SVG}rect") if float(each.attrib["height"]) > 20]
    (margin, _) = map(float, re.findall(r"[\d.]+", moved.attrib["transform"]))
    inside = 0
    for element, held in inherited(root):
        if element.tag != f"{SVG}text":
            continue
        left, right = extent(element, held)
        start = margin if element in list(moved) else 0.0
        assert start + left >= 0
        assert start + right <= float(root.attrib["width"])
        if held["text-anchor"] == "middle":
            y, middle = float(element.attrib["y"]), float(element.attrib["x"])
            (box,) = (
                box
                for box in boxes
                if float(box.attrib.get("stroke-opacity", 1)) == 1
                and 0 < y - float(box.attrib["y"]) < float(box.attrib["height"])
                and 0 < middle - float(box.attrib["x"]) < float(box.attrib["width"])
            )
            assert left > float(box.attrib["x"]) + 2
            assert right < float(box.attrib["x"]) + float(box.attrib["width"]) - 2
            inside += 1
    assert inside > 12


def test_long_and_wide_names_fit() -> None:
    shape = {"outputs": [{"name": "output", "shape": [2]}], "inputs": [], "parameters": {}}
    operator = {"kind": "unapplied", "operator": "Activation", "family": "activation", **shape}
    nodes = [{**operator, "name": name} for name in ("x" * 300, "数据" * 20)]
    root = ElementTree.fromstring(
        network_svg({"kind": "network", "name": "net", "batch_size": None, "nodes": nodes})
    )
    assert float(root.attrib["width"]) < 1400
    boxes = [float(each.attrib["width"]) for each in root.iter(f"{SVG}rect")]
    assert max(boxes[1:]) > 40 * 12
    assert any("…" in (each.text or "") for each in root.iter(f"{SVG}text"))


def test_every_operator_has_a_family_and_each_family_a_colour() -> None:
    library.load()
    assert set(FAMILY_COLOURS) == {family.value for family in OperatorFamily}
    assert set(MEMORY_COLOURS) == {each.value for each in MemoryClass}
    without = {
        name
        for name in OPERATORS
        if OPERATORS.get(name).family is OperatorFamily.OTHER
        and not OPERATORS.get(name).is_internal
    }
    assert all(name.endswith("_update") for name in without)
    families = {
        "Convolution": "convolution",
        "FullyConnected": "dense",
        "BatchNorm": "normalisation",
        "relu": "activation",
        "softmax": "activation",
        "Pooling": "pooling",
        "elemwise_add": "elementwise",
        "exp": "elementwise",
        "Concat": "shape",
        "mean": "reduction",
        "Dropout": "random",
        "MakeLoss": "loss",
    }
    assert {name: OPERATORS.get(name).family.value for name in families} == families


@pytest.mark.parametrize("name", ["digits_lenet", "inceptionv3_imagenet"])
def test_a_family_has_one_colour_in_all_drawings(name: str) -> None:
    report = described(name)
    nodes = fold(report["nodes"])
    svg = ElementTree.fromstring(network_svg(report))
    titles = {
        (box.findtext(f"{SVG}title") or "").split("\n")[0]: box.attrib["stroke"]
        for box in svg.iter(f"{SVG}rect")
        if "stroke" in box.attrib and box.find(f"{SVG}title") is not None
    }
    dot = network_dot(report)
    (table, *_) = network_parts(report)
    cells = dict(
        zip((str(each) for each in table.columns[1].cells), table.columns[2].cells, strict=True)
    )
    for node in nodes:
        if node["kind"] not in ("input", BLOCK):
            colour = FAMILY_COLOURS[node["family"]]
            assert titles[node["name"]] == colour
            (line,) = (
                line for line in dot.splitlines() if line.startswith(f'  "{node["name"]}" [')
            )
            assert f'color="{colour}"' in line
            assert str(cells[node["name"]].style) == colour


def lab(colour: str, sight: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """CIE L*a*b* of a colour as somebody sees it."""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    r, g, b = (min(1.0, max(0.0, sum(map(mul, row, linear)))) for row in sight)
    x, y, z = (
        value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116
        for value in (
            (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047,
            0.2126 * r + 0.7152 * g + 0.0722 * b,
            (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_differ_for_everybody(sight: str) -> None:
    """A distance of 2.3 is just noticeable; small areas need some times as much."""
    seen = [lab(colour, SIGHTS[sight]) for colour in FAMILY_COLOURS.values()]
    assert min(math.dist(one, other) for one, other in combinations(seen, 2)) > 12
    runs = [lab(colour, SIGHTS[sight]) for colour in CURVE_COLOURS[:4]]
    assert min(math.dist(one, other) for one, other in combinations(runs, 2)) > 12


@pytest.mark.parametrize("colours", [FAMILY_COLOURS, MEMORY_COLOURS])
def test_colours_are_visible_on_white_and_on_black(colours: dict[str, str]) -> None:
    for colour in colours.values():
        lightness = lab(colour, SIGHTS["normal"])[0]
        assert 35 < lightness < 75
