"""SVG drawing of an arena: steps across, offsets up, one rectangle per block, coloured by class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.graph.naming import in_words
from mxrun.report.curve_panels import ticks
from mxrun.report.figures import bytes_text
from mxrun.report.palette import INK, MEMORY_COLOURS, PAPER
from mxrun.report.svg import (
    SMALL_SIZE,
    TITLE_SIZE,
    clean,
    document,
    element,
    grid_line,
    line,
    rectangle,
    text,
    text_width,
)

Report = Mapping[str, Any]

LEFT = 84.0
_RIGHT = 24.0
_HEIGHT = 560.0
_WIDTH = 960.0
_HEAD = 60.0
_LEGEND_ROW = 22.0
# Maximum and minimum width of a step, in pixels.
_WIDEST, _NARROWEST = 28.0, 1.0
# Minimum width of a step that has its name below.
_NAMED = 11.0
_MAX_STEP_TICKS = 12
_MAX_BYTE_TICKS = 8
# Minimum height, so that every block is visible, and minimum height of blocks with edges.
_MIN_HEIGHT = 0.1
_EDGED = 2.0
# Seen in viewers with style sheets: the block under the pointer.
_STYLE = ".mxrun .block:hover { stroke: #808080; stroke-width: 1.5px; }\n"


def memory_svg(report: Report) -> str:
    """Return the drawing of the phase that sets the arena's size; equal reports give equal bytes.

    A block has a rectangle for each tensor that it holds, one after the other. The title of each
    has its tensor, bytes, lifetime and reason.
    """
    course = report["timeline"][report["peak"]["phase"]]
    steps = [in_words(name) for name in course["operators"]]
    swatches, top = _legend(report)
    scale = _ArenaScale(max(1, len(steps)), max(1, report["arena_bytes"]), top)
    parts = [
        text(_title(report), LEFT, 30, "title"),
        text(_figures(report), LEFT, 48, "faint"),
        *swatches,
        *_axes(scale, steps),
        *_blocks(report, scale, steps),
        *_peak(report, scale),
    ]
    below = _names_height(steps) if scale.step >= _NAMED else 40.0
    lines = (text_width(_title(report), TITLE_SIZE), text_width(_figures(report), SMALL_SIZE))
    width = LEFT + max(scale.width, _WIDTH, *lines) + _RIGHT
    return document(width, top + _HEIGHT + below, f"Memory of {report['name']}", parts, _STYLE)


def step_width(steps: int) -> float:
    """Return the width of a step in pixels, for a drawing of `steps` steps."""
    return min(_WIDEST, max(_NARROWEST, _WIDTH / steps))


@dataclass(frozen=True)
class _ArenaScale:
    """Mapping from steps and bytes to pixels; `top` is the upper edge of the arena."""

    steps: int
    nbytes: int
    top: float

    @property
    def step(self) -> float:
        """Width of a step."""
        return step_width(self.steps)

    @property
    def width(self) -> float:
        """Width of all steps."""
        return self.steps * self.step

    def across(self, step: int) -> float:
        """Horizontal position of the start of a step, from the left."""
        return LEFT + step * self.step

    def up(self, offset: int) -> float:
        """Vertical position of an offset, from the top."""
        return self.top + _HEIGHT * (1 - offset / self.nbytes)


def _title(report: Report) -> str:
    peak = report["peak"]
    return f"{report['name']}: {bytes_text(report['planned_bytes'])} for {peak['phase']}"


def _figures(report: Report) -> str:
    named = (
        ("lower bound", "lower_bound_bytes"),
        ("free list", "free_list_bytes"),
        ("without reuse", "in_place_only_bytes"),
        ("no memory shared", "naive_bytes"),
    )
    return ", ".join(f"{label} {bytes_text(report[key])}" for label, key in named)


def _legend(report: Report) -> tuple[list[str], float]:
    """Return the swatches of all classes with bytes, in rows, and the upper edge of the arena."""
    parts: list[str] = []
    x, y = LEFT, _HEAD
    for name, figures in report["classes"].items():
        if not figures["total_bytes"]:
            continue
        label = f"{name.replace('_', ' ')}, {bytes_text(figures['peak_bytes'])} at the peak"
        room = 28 + text_width(label) + 16
        if x > LEFT and x + room > LEFT + _WIDTH:
            x, y = LEFT, y + _LEGEND_ROW
        parts.append(
            rectangle(x=x, y=y, width=20.0, height=13.0, rx=3.0, fill=MEMORY_COLOURS[name])
        )
        parts.append(text(label, x + 28, y + 11))
        x += room
    # The label of the peak is above the arena.
    return parts, y + 2.5 * _LEGEND_ROW


def _axes(scale: _ArenaScale, steps: Sequence[str]) -> Iterator[str]:
    right, bottom = LEFT + scale.width, scale.up(0)
    spacing = 1
    while scale.nbytes > spacing * _MAX_BYTE_TICKS:
        spacing *= 2
    for offset in range(0, scale.nbytes + 1, spacing):
        y = scale.up(offset)
        yield grid_line(x1=LEFT, y1=y, x2=right, y2=y)
        yield text(bytes_text(offset), LEFT - 6, y + 4, "faint", "end")
    if scale.step >= _NAMED:
        for position, name in enumerate(steps):
            yield _rotated_label(name, scale.across(position) + scale.step / 2 + 3, bottom + 10)
        return
    for tick in ticks(0, scale.steps - 1, _MAX_STEP_TICKS):
        yield text(str(int(tick)), scale.across(int(tick)), bottom + 16, "faint", "middle")
    yield text("step", right, bottom + 32, "faint", "end")


def _rotated_label(name: str, x: float, y: float) -> str:
    """Return a rotated name that ends at (x, y), from below."""
    return text(name, x, y, "faint", "end", transform=f"rotate(-60 {x:.1f} {y:.1f})")


def _names_height(steps: Sequence[str]) -> float:
    """Return the height of names rotated by 60 degrees."""
    return 24 + 0.9 * max((text_width(name, SMALL_SIZE) for name in steps), default=0.0)


def drawn_blocks(report: Report) -> list[dict[str, Any]]:
    """Return what is drawn: pinned blocks first, then the tensors in each of the others, of the
    phase that sets the size.
    """
    phase = report["peak"]["phase"]
    last = max(0, len(report["timeline"][phase]["operators"]) - 1)
    pinned = [
        {**block, "first": 0, "last": last, "root": block["tensor"], "shared": []}
        for block in report["pinned"]
    ]
    held = [{**block, **tensor} for block in report["blocks"][phase] for tensor in block["tensors"]]
    return [*pinned, *held]


def _blocks(report: Report, scale: _ArenaScale, steps: Sequence[str]) -> Iterator[str]:
    for block in drawn_blocks(report):
        top = scale.up(block["offset"] + block["bytes"])
        height = scale.up(block["offset"]) - top
        edge: dict[str, str | float] = {}
        if height >= _EDGED:
            edge = {"stroke": PAPER, "stroke_width": 0.4}
        yield rectangle(
            element("title", clean(_block_description(block, steps))),
            x=scale.across(block["first"]),
            y=top,
            width=(block["last"] + 1 - block["first"]) * scale.step,
            height=max(_MIN_HEIGHT, height),
            class_="block",
            fill=MEMORY_COLOURS[block["class"]],
            **edge,
        )


def _block_description(block: Report, steps: Sequence[str]) -> str:
    """Return the description of a block in lines."""
    lines = [
        in_words(block["tensor"]),
        f"{block['class'].replace('_', ' ')}: {block['bytes']:,} bytes at {block['offset']:,}",
    ]
    first, last = block["first"], block["last"]
    if last - first == len(steps) - 1:
        lines.append("live at every step")
    elif first == last:
        lines.append(f"step {first}: {steps[first]}")
    else:
        lines.append(f"steps {first} to {last}: {steps[first]} to {steps[last]}")
    lines.append(block["reason"])
    if block["shared"]:
        lines.append(f"shares its bytes with: {', '.join(map(in_words, block['shared']))}")
    return "\n".join(lines)


def _peak(report: Report, scale: _ArenaScale) -> Iterator[str]:
    """Yield a frame around the step of the peak, its label, and the lower bound if smaller."""
    peak = report["peak"]
    x, bound = scale.across(peak["step"]), scale.up(report["lower_bound_bytes"])
    label = f"peak: {in_words(peak['operator'])}, step {peak['step']}, {bytes_text(peak['bytes'])}"
    look: dict[str, str | float] = {"fill": "none", "stroke": INK}
    frame = {**look, "class_": "outline peak", "stroke_width": 1.4}
    yield rectangle(x=x, y=scale.top - 3, width=scale.step, height=_HEIGHT + 6, **frame)
    if x + text_width(label) <= LEFT + scale.width:
        yield text(label, x, scale.top - 9, "bold")
    else:
        yield text(label, x + scale.step, scale.top - 9, "bold", "end")
    if report["gap_bytes"]:
        right = LEFT + scale.width
        dashes = {**look, "class_": "outline", "stroke_width": 1.0, "stroke_dasharray": "5 4"}
        yield line(x1=LEFT, y1=bound, x2=right, y2=bound, **dashes)
