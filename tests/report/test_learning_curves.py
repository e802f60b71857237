"""Learning curves, rendered into a file of fixed width and as drawings."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from consoles import printed

from mxrun.report.curves import bounds, curve_parts, ticks
from mxrun.report.curves_svg import curves_svg

Values = list[float | None]


def report(epochs: list[int], *metrics: tuple[str, Values, Values]) -> dict[str, Any]:
    parts = [{"name": name, "train": train, "eval": held} for name, train, held in metrics]
    return {"kind": "curves", "name": "net", "notes": [], "epochs": epochs, "metrics": parts}


def rendered(what: dict[str, Any], width: int = 40) -> list[str]:
    return [line.rstrip() for line in printed(*curve_parts(what), width=width).splitlines()]


def test_a_falling_line_falls() -> None:
    lines = rendered(report([1, 2, 3], ("loss", [3.0, 2.0, 1.0], [None, None, None])))
    assert lines[:3] == ["net, 3 epochs", "", "  loss   ⠒⠒ train 1.0000"]
    canvas = [line.partition("│")[2] for line in lines if "│" in line]
    assert len(canvas) == 10
    assert lines[3].startswith("  3.0000 │")
    assert lines[12].startswith("  1.0000 │")
    beginnings = [len(row) - len(row.lstrip()) for row in canvas]
    assert beginnings == sorted(beginnings)
    assert beginnings[0] == 0
    assert len(canvas[-1]) == 29
    assert lines[-1] == "          1           epoch           3"


def test_evaluation_is_marked_at_its_epochs() -> None:
    lines = rendered(report([1, 2, 3], ("loss", [None] * 3, [1.0, 2.0, 3.0])))
    canvas = [line.partition("│")[2] for line in lines if "│" in line]
    assert "".join(canvas).count("o") == 3
    assert canvas[0] == " " * 28 + "o"
    assert canvas[-1] == "o"


def test_what_was_not_finite_leaves_a_gap() -> None:
    whole = rendered(report([1, 2, 3], ("loss", [1.0, 1.0, 1.0], [None] * 3)))
    torn = rendered(report([1, 2, 3], ("loss", [1.0, None, 1.0], [None] * 3)))
    dots = [
        sum(text.count(chr(code)) for text in lines for code in range(0x2801, 0x2900))
        for lines in (whole, torn)
    ]
    assert dots[0] > 29
    assert dots[1] == 2 + 2


@pytest.mark.parametrize("width", [20, 40, 80, 500])
def test_panels_fit(width: int) -> None:
    lines = rendered(report([1, 2], ("loss", [1.0, 2.0], [1.5, 1.0])), width)
    assert max(map(len, lines)) <= max(width, 40)


def test_a_metric_that_never_was_finite_has_no_panel() -> None:
    what = report([1], ("loss", [None], [None]), ("accuracy", [0.5], [None]))
    assert not any("loss" in line for line in rendered(what))
    assert "loss" not in curves_svg(what)


def test_epochs_need_not_begin_at_one() -> None:
    lines = rendered(report([7, 9], ("loss", [1.0, 2.0], [None, None])))
    assert lines[-1].split() == ["7", "epoch", "9"]


@pytest.mark.parametrize(
    ("epochs", "train"),
    [
        ([1], [0.5]),
        ([1, 2], [0.0, 0.0]),
        ([1, 2, 3], [1e-30, 1e30, None]),
        (list(range(1, 1001)), [1 / epoch for epoch in range(1, 1001)]),
    ],
)
def test_drawings_are_well_formed_and_the_same(epochs: list[int], train: Values) -> None:
    what = report(epochs, ("loss", train, list(reversed(train))))
    text = curves_svg(what)
    assert text == curves_svg(what)
    root = ElementTree.fromstring(text)
    paths = [element for element in root.iter() if element.tag.endswith("}path")]
    assert len(paths) == 2
    drawn = sum(value is not None for value in train)
    assert sum(path.attrib["d"].count("L") + path.attrib["d"].count("M") for path in paths) == (
        2 * drawn
    )
    assert "nan" not in text


def test_a_drawing_holds_what_is_to_be_known_of_its_run() -> None:
    note = "runs/net was trained on synthetic data (dataset: synthetic), not on data of a real task"
    what = report([1, 2], ("loss", [1.0, 0.5], [None, None]))
    plain = ElementTree.fromstring(curves_svg(what))
    noted = ElementTree.fromstring(curves_svg(what | {"notes": [note]}))
    assert note in [element.text for element in noted.iter()]
    assert float(noted.attrib["height"]) > float(plain.attrib["height"])
    assert float(noted.attrib["width"]) > 6 * len(note)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.17, 0.98, [0.2, 0.4, 0.6, 0.8]),
        (1, 30, [5, 10, 15, 20, 25, 30]),
        (-3.0, 3.0, [-2.0, 0.0, 2.0]),
        (1e-6, 9e-6, [2e-6, 4e-6, 6e-6, 8e-6]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high, 6 if high == 30 else 5) == pytest.approx(expected)


def test_bounds_are_apart() -> None:
    assert bounds([2.0, 1.0]) == (1.0, 2.0)
    assert bounds([0.0]) == (-1.0, 1.0)
    assert bounds([-5.0, -5.0]) == (-5.5, -4.5)
