"""Learning curves, rendered into a file of fixed width and as drawings."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from consoles import printed

from mxrun.report.curve_panels import bounds, curve_panels, log_ticks, ticks
from mxrun.report.curves import curve_parts
from mxrun.report.curves_svg import curves_svg
from mxrun.report.fitted_table import shortened

Values = list[float | None]


def run(
    epochs: list[int],
    *metrics: tuple[str, Values, Values],
    name: str = "net",
    rates: Values | None = None,
) -> dict[str, Any]:
    parts = [{"name": each, "train": train, "eval": held} for each, train, held in metrics]
    learning = {"learning_rate": rates or [None] * len(epochs)}
    place = {"name": name, "run_dir": f"runs/{name}", "notes": []}
    return {**place, "epochs": epochs, **learning, "metrics": parts}


def report(epochs: list[int], *metrics: tuple[str, Values, Values]) -> dict[str, Any]:
    return {"kind": "curves", "runs": [run(epochs, *metrics)]}


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
    assert lines[1:3] == ["training is a line, evaluation o", ""]
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
    what["runs"][0]["notes"] = [note]
    noted = ElementTree.fromstring(curves_svg(what))
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


def test_figures_with_the_same_values_share_a_panel() -> None:
    loss, same = [2.0, 1.0], [2.0 + 1e-9, 1.0 - 1e-9]
    what = report(
        [1, 2],
        ("cross_entropy", same, [1.5, None]),
        ("loss", loss, [1.5, None]),
        ("mse", [2.0, 1.01], [1.5, None]),
    )
    assert [panel.title for panel in curve_panels(what)] == ["loss, cross_entropy", "mse"]


def test_figures_that_differ_in_one_run_have_panels_of_their_own() -> None:
    first = run([1], ("loss", [1.0], [None]), ("mse", [1.0], [None]))
    second = run([1], ("loss", [1.0], [None]), ("mse", [2.0], [None]), name="other")
    panels = curve_panels({"kind": "curves", "runs": [first, second]})
    assert [panel.title for panel in panels] == ["loss", "mse"]


@pytest.mark.parametrize(
    ("values", "log", "expected"),
    [
        ([1.0, 0.011], None, False),
        ([1.0, 0.009], None, True),
        ([1.0, 0.5], True, True),
        ([1.0, 0.0001], False, False),
        ([1.0, 0.0], None, False),
        # An axis with values that are not positive stays linear.
        ([1.0, 0.0], True, False),
        ([0.5, 0.5], True, True),
    ],
)
def test_an_axis_is_logarithmic_from_two_decades_on(
    values: Values, log: bool | None, expected: bool
) -> None:
    what = report([1, 2], ("loss", values, [None, None]))
    (panel,) = curve_panels(what, log)
    assert panel.axis.is_log is expected
    text = "\n".join(printed(*curve_parts(what, log), width=60).splitlines())
    assert ("loss, logarithmic" in text) is expected
    assert ("loss, logarithmic" in curves_svg(what, log)) is expected


def test_a_logarithmic_axis_has_equal_distances_for_equal_ratios() -> None:
    (panel,) = curve_panels(report([1, 2, 3], ("loss", [1.0, 0.01, 1e-4], [None] * 3)))
    assert [panel.axis.position(value) for value in (1e-4, 0.01, 1.0)] == pytest.approx([0, 0.5, 1])
    assert panel.axis.ticks(5) == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1])


def test_the_learning_rate_has_a_panel_if_it_changes() -> None:
    loss = ("loss", [1.0, 0.5], [None, None])
    constant = {"kind": "curves", "runs": [run([1, 2], loss, rates=[0.1, 0.1])]}
    assert [panel.title for panel in curve_panels(constant)] == ["loss"]
    assert rendered(constant)[0] == "net, 2 epochs, learning rate 0.1"
    changing = {"kind": "curves", "runs": [run([1, 2], loss, rates=[0.1, 0.05])]}
    assert [panel.title for panel in curve_panels(changing)] == ["loss", "learning rate"]
    other = run([1], ("loss", [1.0], [None]), name="other", rates=[0.2])
    several = {"kind": "curves", "runs": [*constant["runs"], other]}
    assert [panel.title for panel in curve_panels(several)] == ["loss", "learning rate"]


def test_several_runs_have_letters_and_a_colour_each() -> None:
    first = run([1, 2, 3], ("loss", [3.0, 2.0, 1.0], [3.0, 2.5, 2.0]))
    name = "a_long_name_of_a_run_" * 3
    second = run([1, 2], ("loss", [3.0, 1.5], [None, None]), name=name)
    what = {"kind": "curves", "runs": [first, second]}
    lines = rendered(what, 60)
    assert lines[0] == "2 runs"
    assert lines[1] == "training is a line, evaluation a letter"
    assert lines[4].split() == ["a", "net", "train", "1.0000", "eval", "2.0000"]
    assert "…" in lines[5]
    assert lines[5].endswith("   train 1.5000")
    canvas = "".join(line.partition("│")[2] for line in lines if "│" in line)
    # A mark for each evaluation, or at the end of the line of training.
    assert (canvas.count("a"), canvas.count("b")) == (3, 1)
    assert max(map(len, lines)) <= 60
    drawing = ElementTree.fromstring(curves_svg(what))
    paths = [element for element in drawing.iter() if element.tag.endswith("}path")]
    dashed = [path.attrib.get("stroke-dasharray") is not None for path in paths]
    assert dashed == [False, True, False]
    colours = [path.attrib["stroke"] for path in paths]
    assert colours[0] == colours[1] != colours[2]
    texts = [element.text for element in drawing.iter()]
    assert {"net", name, "train", "eval"} <= set(texts)


def test_runs_of_one_name_are_named_by_their_paths() -> None:
    first = run([1], ("loss", [1.0], [None]))
    second = {**first, "run_dir": "other/net"}
    texts = curves_svg({"kind": "curves", "runs": [first, second]})
    assert "runs/net" in texts
    assert "other/net" in texts


def test_wide_consoles_show_two_panels_beside_each_other() -> None:
    what = report([1, 2], ("loss", [1.0, 2.0], [None] * 2), ("mse", [3.0, 4.0], [None] * 2))
    narrow, wide = (printed(*curve_parts(what), width=width) for width in (120, 200))
    assert len(wide.splitlines()) == len(narrow.splitlines()) - 14
    assert any("loss" in line and "mse" in line for line in wide.splitlines())
    assert all(line == line.rstrip() for line in wide.splitlines())


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1e-4, 1.0, [1e-4, 1e-3, 1e-2, 1e-1, 1.0]),
        (0.05, 7.0, [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]),
        (1e-12, 1.0, [1e-12, 1e-9, 1e-6, 1e-3, 1.0]),
        (3.1, 3.9, [3.2, 3.4, 3.6, 3.8]),
    ],
)
def test_logarithmic_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high, 5) == pytest.approx(expected)


def test_names_are_shortened_in_the_middle() -> None:
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghij", 7) == "abc…hij"
    assert shortened("abcdefghij", 6) == "abc…ij"
