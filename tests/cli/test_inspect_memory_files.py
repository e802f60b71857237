"""Files of `inspect-memory`: drawing, page and CSV, compared with the plan itself."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from commands import mxrun, refused, succeeded
from memory_reports import memory_of
from pages import opened

from mxrun.config.bundled import find_config
from mxrun.graph.naming import in_words
from mxrun.planner.explain import block_lifetimes, live_tensors
from mxrun.planner.plan import Block, Plan
from mxrun.report.memory_csv import memory_csv
from mxrun.report.memory_html import memory_html
from mxrun.report.memory_svg import drawn_blocks, memory_svg

CASES = [
    ("digits_lenet", "train"),
    ("digits_regularized", "train"),
    ("resnet20_cifar10", "train"),
    ("resnet20_cifar10", "infer"),
]
SVG = "{http://www.w3.org/2000/svg}"
# Coordinates are rounded to a tenth of a pixel.
NEAR = 0.11
# Moves the pointer over one block, in the middle of the first of its steps.
POINT = """<script>
const target = [...document.querySelectorAll(".block")][INDEX];
const frame = target.getBoundingClientRect();
target.dispatchEvent(new MouseEvent("mousemove", {bubbles: true,
  clientX: frame.left + frame.width / 2 / STEPS, clientY: frame.top + frame.height / 2}));
</script></body>"""
# Clicks a block and moves the pointer over the first row of the table.
CLICK = """<script>
const clicked = [...document.querySelectorAll(".block")][INDEX];
const corner = clicked.getBoundingClientRect();
clicked.dispatchEvent(new MouseEvent("click", {bubbles: true,
  clientX: corner.left + 1, clientY: corner.top + corner.height / 2}));
document.querySelector("#live tbody td").dispatchEvent(
  new MouseEvent("mouseover", {bubbles: true}));
</script></body>"""


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(case))
def inspected(request: pytest.FixtureRequest) -> tuple[Plan, dict[str, Any]]:
    name, phase = request.param
    report = memory_of(find_config(name), phase=phase, threads=2, measured=False)
    return report.plan, report.to_json()


def rectangles(drawing: str) -> list[ElementTree.Element]:
    elements = ElementTree.fromstring(drawing).iter(f"{SVG}rect")
    return [element for element in elements if "block" in element.get("class", "").split()]


def corner(rectangle: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom."""
    x, y, width, height = (float(rectangle.get(key, "")) for key in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def held_tensors(plan: Plan) -> list[tuple[Block, int, int]]:
    """Pinned blocks, then for each other block the steps of each tensor that it holds."""
    phase = plan.largest_phase
    lifetimes = block_lifetimes(phase)
    assert len(lifetimes) == len(phase.blocks)
    return [
        *((block, 0, len(phase.steps)) for block in plan.pinned),
        *(
            (block, live.first, live.last + 1)
            for block, lifetime in zip(phase.blocks, lifetimes, strict=True)
            for live in lifetime.held
        ),
    ]


def test_F1_the_drawing_has_each_block_at_its_place(
    inspected: tuple[Plan, dict[str, Any]],
) -> None:
    plan, report = inspected
    drawn = rectangles(memory_svg(report))
    phase = plan.largest_phase
    expected = held_tensors(plan)
    assert len(drawn) == len(expected)
    corners = [corner(rectangle) for rectangle in drawn]
    # The arena is as high as its blocks, and all steps have the same width.
    left, right = min(c[0] for c in corners), max(c[2] for c in corners)
    top, bottom = min(c[1] for c in corners), max(c[3] for c in corners)
    height, width = bottom - top, (right - left) / len(phase.steps)
    for (block, first, end), found in zip(expected, corners, strict=True):
        assert found[0] == pytest.approx(left + first * width, abs=NEAR)
        assert found[2] == pytest.approx(left + end * width, abs=2 * NEAR)
        assert found[3] == pytest.approx(
            bottom - height * block.offset / plan.planned_bytes, abs=2 * NEAR
        )
        assert found[1] == pytest.approx(
            bottom - height * block.end / plan.planned_bytes, abs=2 * NEAR
        )
    colours: dict[str, set[str | None]] = {}
    for (block, _, _), rectangle in zip(expected, drawn, strict=True):
        colours.setdefault(block.memory_class.value, set()).add(rectangle.get("fill"))
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == len(colours)


def test_a_block_names_the_tensor_that_it_holds(inspected: tuple[Plan, dict[str, Any]]) -> None:
    """At every step the drawing names the tensor that the table of live tensors names."""
    plan, report = inspected
    phase = plan.largest_phase
    held = drawn_blocks(report)[len(plan.pinned) :]
    for position in range(len(phase.steps)):
        live = {
            tensor.block.offset: (tensor.tensor, tensor.reason)
            for tensor in live_tensors(phase, plan.pinned, position)
            if not any(tensor.block.offset == block.offset for block in plan.pinned)
        }
        shown = {
            each["offset"]: (each["tensor"], each["reason"])
            for each in held
            if each["first"] <= position <= each["last"]
        }
        assert shown == live
    names = {each["tensor"] for block in report["blocks"][phase.name] for each in block["tensors"]}
    assert len(names) > len(phase.blocks) / 2


def test_F1_the_drawing_tells_classes_and_peak(inspected: tuple[Plan, dict[str, Any]]) -> None:
    _, report = inspected
    drawing = memory_svg(report)
    tree = ElementTree.fromstring(drawing)
    texts = [element.text or "" for element in tree.iter(f"{SVG}text")]
    for name, figures in report["classes"].items():
        told = [text for text in texts if text.startswith(name.replace("_", " ") + ",")]
        assert len(told) == (figures["total_bytes"] > 0)
    peak = report["peak"]
    label = f"peak: {in_words(peak['operator'])}, step {peak['step']}"
    assert any(text.startswith(label) for text in texts)
    (frame,) = [each for each in tree.iter(f"{SVG}rect") if each.get("class") == "outline peak"]
    left, _, right, _ = corner(frame)
    middle = (left + right) / 2
    at_the_peak = [
        rectangle
        for rectangle in rectangles(drawing)
        if corner(rectangle)[0] < middle < corner(rectangle)[2]
    ]
    assert len(at_the_peak) == len(peak["live"])
    assert memory_svg(report) == drawing


def test_F1_each_rectangle_tells_its_tensor_and_reason() -> None:
    report = memory_of(find_config("digits_lenet"), threads=1).to_json()
    told = [
        (rectangle.findtext(f"{SVG}title") or "").splitlines()
        for rectangle in rectangles(memory_svg(report))
    ]
    for lines, block in zip(told, drawn_blocks(report), strict=True):
        assert lines[0] == in_words(block["tensor"])
        assert f"{block['bytes']:,} bytes at {block['offset']:,}" in lines[1]
        assert lines[3] == block["reason"]
    by_name = {lines[0]: lines for lines in told}
    assert by_name["fc1_weight"][2:] == ["live at every step", "parameter"]
    # relu1 runs after the pooling, in its place.
    assert by_name["pool1_maxima"][2:4] == ["step 2: pool1", "relu1 reads it"]
    kept = by_name["pool1_output"]
    assert kept[2] == "steps 3 to 32: relu1 to backward of relu1"
    assert kept[3] == "backward of relu1 reads it (output)"


class Page(HTMLParser):
    """Parser of a page: its elements, and the resources that it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.data: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.data.setdefault(self.open[-1], []).append(data)


def test_F1_the_page_is_whole_and_asks_for_nothing(inspected: tuple[Plan, dict[str, Any]]) -> None:
    plan, report = inspected
    text = memory_html(report)
    page = Page(text)
    assert page.open == []
    assert page.tags.count("svg") == 1
    assert page.tags.count("tr") == 1 + len(report["peak"]["live"])
    assert not {"src", "href", "xlink:href", "srcset"} & {name for name, _ in page.attributes}
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket", text)
    assert set(re.findall(r"https?://[^\"'\s]*", text)) == {"http://www.w3.org/2000/svg"}
    course = json.loads(page.data["script"][0])
    assert course["operators"] == [in_words(step.name) for step in plan.largest_phase.steps]
    assert len(course["bytes"]) == len(course["operators"])


def test_F7_each_row_of_the_page_knows_its_block(inspected: tuple[Plan, dict[str, Any]]) -> None:
    """Blocks are in the order of the rectangles; the rows are those live at the peak."""
    plan, report = inspected
    text = memory_html(report)
    page = Page(text)
    blocks = json.loads(page.data["script"][0])["blocks"]
    assert len(blocks) == len(rectangles(memory_svg(report)))
    assert [(size, offset) for _, size, offset, *_ in blocks] == [
        (block.nbytes, block.offset) for block, _, _ in held_tensors(plan)
    ]
    rows = [int(value or "") for name, value in page.attributes if name == "data-block"]
    step = report["peak"]["step"]
    assert len(set(rows)) == len(rows) == len(report["peak"]["live"])
    for number, live in zip(rows, report["peak"]["live"], strict=True):
        told, size, offset, first, last, reason = blocks[number]
        assert (size, offset) == (live["bytes"], live["offset"])
        assert first <= step <= last
        assert told
        assert reason


def test_F1_no_name_becomes_markup() -> None:
    """Names are escaped in tables, drawing, and the data of the script."""
    path = find_config("digits_lenet")
    asked = memory_of(path, threads=1, measured=False, what_if=True)
    report = asked.to_json()
    evil = "</script><b onclick='x'>&amp;"
    report["timeline"]["train"]["operators"][3] = evil
    report["peak"]["live"][0] |= {"tensor": evil, "root": evil, "reason": evil}
    for block in report["blocks"]["train"]:
        block["root"] = evil
        for held in block["tensors"]:
            held |= {"tensor": evil, "reason": evil, "shared": [evil]}
    report["what_if"]["changes"][0] |= {"change": evil, "config": evil}
    report["name"] = report["peak"]["operator"] = evil
    page = Page(memory_html(report))
    assert page.open == []
    assert "b" not in page.tags
    assert "onclick" not in {name for name, _ in page.attributes}
    course = json.loads(page.data["script"][0])
    assert course["operators"][3] == course["blocks"][-1][0] == course["blocks"][-1][-1] == evil
    assert evil in page.data["td"]
    ElementTree.fromstring(memory_svg(report))


def test_F1_a_browser_shows_the_block_under_the_pointer(tmp_path: Path) -> None:
    report = memory_of(find_config("digits_lenet"), threads=1).to_json()
    blocks = drawn_blocks(report)
    index = next(i for i, block in enumerate(blocks) if block["tensor"] == "pool1_output")
    path = tmp_path / "arena.html"
    page = memory_html(report)
    first, last = blocks[index]["first"], blocks[index]["last"]
    pointing = POINT.replace("INDEX", str(index)).replace("STEPS", str(last + 1 - first))
    path.write_text(page.replace("</body>", pointing))
    shown = opened(path)
    (tooltip,) = re.findall(r'<div id="tooltip"[^>]*>(.*?)</div>', shown, re.S)
    lines = tooltip.splitlines()
    assert lines[0] == "pool1_output"
    assert f"{blocks[index]['bytes']:,} bytes" in lines[1]
    assert lines[2].endswith("relu1 to backward of relu1")
    assert lines[3] == "backward of relu1 reads it (output)"
    assert "display: block" in shown
    (step,) = re.findall(r'<div id="step">(.*?)</div>', shown, re.S)
    assert step.startswith(f"step {first}, relu1: ")
    assert step.endswith(" live")


def test_F7_a_browser_lists_what_is_alive_where_one_clicks(tmp_path: Path) -> None:
    """Also highlights the block of the row under the pointer."""
    report = memory_of(find_config("digits_lenet"), threads=1).to_json()
    path = tmp_path / "arena.html"
    first = report["blocks"]["train"][0]["first"]
    clicking = CLICK.replace("INDEX", str(len(report["pinned"])))
    path.write_text(memory_html(report).replace("</body>", clicking))
    shown = opened(path)
    nbytes = report["timeline"]["train"]["bytes"][first]
    assert f"live in train at step {first}, " in shown
    assert f": {nbytes:,} bytes</caption>" in shown
    alive = [
        block for block in report["blocks"]["train"] if block["first"] <= first <= block["last"]
    ]
    assert len(re.findall(r"<tr[^>]*data-block", shown)) == len(report["pinned"]) + len(alive)
    assert len(re.findall(r"<rect[^>]*class=\"block[^\"]* lit\"", shown)) == 1
    assert len(re.findall(r"<tr[^>]*class=\"lit\"", shown)) == 1


def test_F1_the_problem_has_the_plans_lower_bound(inspected: tuple[Plan, dict[str, Any]]) -> None:
    plan, report = inspected
    content = memory_csv(report)
    assert content.splitlines()[0] == "id,lower,upper,size"
    rows = list(csv.DictReader(content.splitlines()))
    assert len({row["id"] for row in rows}) == len(rows) == len(plan.largest_phase.blocks)
    changes: dict[int, int] = {}
    for row in rows:
        lower, upper, size = (int(row[key]) for key in ("lower", "upper", "size"))
        assert 0 <= lower < upper <= len(plan.largest_phase.steps)
        changes[lower] = changes.get(lower, 0) + size
        changes[upper] = changes.get(upper, 0) - size
    alive, most = 0, 0
    for step in sorted(changes):
        alive += changes[step]
        most = max(most, alive)
    assert alive == 0
    assert plan.pinned_bytes + most == plan.lower_bound_bytes


def test_files_are_written_beside_the_report(tmp_path: Path) -> None:
    names = ("arena.svg", "arena.html", "arena.csv")
    asked = [f"--{Path(name).suffix[1:]}={name}" for name in names]
    done = succeeded(
        mxrun("inspect-memory", "digits_lenet", "--threads=1", "--json", *asked, cwd=tmp_path)
    )
    assert done.stderr.splitlines() == [f"mxrun: wrote {name}" for name in names]
    report = json.loads(done.stdout)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert (tmp_path / "arena.csv").read_text() == memory_csv(report)
    # JSON's keys are sorted, the classes with them; the drawing has them in their own order.
    drawn = rectangles((tmp_path / "arena.svg").read_text())
    assert len(drawn) == len(drawn_blocks(report))
    assert (tmp_path / "arena.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("options", "both"),
    [
        (("--svg", "arena", "--html", "arena"), ("--svg", "--html")),
        (("--csv", "./arena", "--html", "arena"), ("--html", "--csv")),
        (("--svg", "folder/../arena", "--csv", "arena"), ("--svg", "--csv")),
        (("--html", "./net.yaml"), ("CONFIG", "--html")),
        (("--diff", "folder/other.yaml", "--csv", "folder/other.yaml"), ("CONFIG", "--csv")),
    ],
)
def test_two_files_have_two_paths(
    options: tuple[str, ...], both: tuple[str, str], tmp_path: Path
) -> None:
    """Refused before anything is planned or written, also for the path of a config."""
    (tmp_path / "folder").mkdir()
    configs = [tmp_path / "net.yaml", tmp_path / "folder" / "other.yaml"]
    content = find_config("digits_lenet").read_text()
    for config in configs:
        config.write_text(content)
    told = refused("inspect-memory", "net.yaml", *options, cwd=tmp_path)
    assert f"{both[0]} and {both[1]} name the same file" in told
    assert sorted(tmp_path.rglob("*.*")) == sorted(configs)
    assert [config.read_text() for config in configs] == [content, content]


def test_a_file_that_cannot_be_written_is_one_diagnostic(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for option in ("--svg", "--html", "--csv"):
        told = refused("inspect-memory", "digits_lenet", option, "none/a", cwd=tmp_path)
        assert "cannot write none/a" in told


def test_no_two_rectangles_overlap() -> None:
    report = memory_of(find_config("digits_lenet"), threads=1).to_json()
    corners = [corner(rectangle) for rectangle in rectangles(memory_svg(report))]
    for number, one in enumerate(corners):
        for other in corners[number + 1 :]:
            across = min(one[2], other[2]) - max(one[0], other[0])
            down = min(one[3], other[3]) - max(one[1], other[1])
            assert across <= 2 * NEAR or down <= 2 * NEAR


def test_no_file_is_written_unless_all_can_be(tmp_path: Path) -> None:
    files = ("--svg", "plan.svg", "--html", "none/plan.html", "--csv", "none/plan.csv")
    text = refused("inspect-memory", "mlp_mnist", *files, cwd=tmp_path)
    assert "cannot write none/plan.html: there is no folder" in text
    assert "cannot write none/plan.csv: there is no folder" in text
    assert list(tmp_path.iterdir()) == []
