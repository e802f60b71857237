"""Learning curves as SVG: one panel per metric, training and evaluation as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mxrun.report.curves import bounds, finite, ticks
from mxrun.report.figures import metric_text
from mxrun.report.svg import COLOURS, document, element, points, text, text_width

Report = Mapping[str, Any]

_WIDTH = 380.0
_HEIGHT = 220.0
_LEFT = 64.0
_RIGHT = 20.0
_TOP = 40.0
_BOTTOM = 34.0
_COLUMNS = 2
_HEAD = 48.0
_LINE = 14.0
_MAX_MARKS = 60
_COLOURS = {"train": COLOURS[0], "eval": COLOURS[1]}


def curves_svg(report: Report) -> str:
    """Return the SVG document. Deterministic: equal reports give equal bytes."""
    metrics = [metric for metric in report["metrics"] if finite(metric)]
    parts = [text(str(report["name"]), 24, 32, "title")]
    notes = report["notes"]
    parts += [text(note, 24, _HEAD + index * _LINE, "faint") for index, note in enumerate(notes)]
    head = _HEAD + len(notes) * _LINE
    for index, metric in enumerate(metrics):
        row, column = divmod(index, _COLUMNS)
        place = points(column * _panel_width(), head + row * _panel_height())
        panel = "\n".join(_panel(metric, report["epochs"]))
        parts.append(element("g", f"\n{panel}\n", transform=f"translate({place})"))
    rows = -(-len(metrics) // _COLUMNS)
    columns = min(max(len(metrics), 1), _COLUMNS)
    title = f"Learning curves of {report['name']}"
    notes_width = max((48 + text_width(note, 10) for note in notes), default=0.0)
    width = max(columns * _panel_width(), notes_width)
    return document(width, head + rows * _panel_height(), title, parts)


def _panel_width() -> float:
    return _LEFT + _WIDTH + _RIGHT


def _panel_height() -> float:
    return _TOP + _HEIGHT + _BOTTOM


@dataclass(frozen=True)
class _PanelScale:
    """Mapping from epochs and values to pixels within a panel."""

    first: float
    last: float
    low: float
    high: float

    def across(self, epoch: float) -> float:
        """Horizontal position of an epoch, from the left."""
        return _LEFT + (epoch - self.first) / (self.last - self.first) * _WIDTH

    def down(self, value: float) -> float:
        """Vertical position of a value, from the top."""
        return _TOP + (self.high - value) / (self.high - self.low) * _HEIGHT


def _panel(metric: Report, epochs: Sequence[int]) -> Iterator[str]:
    single = len(epochs) == 1
    ends = (epochs[0] - single, epochs[-1] + single)
    scale = _PanelScale(*ends, *bounds(finite(metric)))
    yield text(metric["name"], _LEFT, _TOP - 12, "bold")
    yield from _axes(scale)
    right = _LEFT + _WIDTH
    for part, colour in _COLOURS.items():
        values = [value for value in metric[part] if value is not None]
        if values:
            label = f"{part} {metric_text(values[-1])}"
            yield text(label, right, _TOP - 12, "faint", "end")
            right -= text_width(label, 10) + 6
            stroke = _stroke(colour)
            yield element("line", x1=right - 18, x2=right, y1=_TOP - 16, y2=_TOP - 16, **stroke)
            right -= 34
            yield from _curve(metric[part], epochs, scale, colour)


def _axes(scale: _PanelScale) -> Iterator[str]:
    right, bottom = _LEFT + _WIDTH, _TOP + _HEIGHT
    for value in ticks(scale.low, scale.high, 5):
        y = scale.down(value)
        yield element("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="grid")
        yield text(f"{value:.6g}", _LEFT - 6, y + 4, "faint", "end")
    for epoch in ticks(scale.first, scale.last, 6):
        if epoch == int(epoch):
            yield text(str(int(epoch)), scale.across(epoch), bottom + 16, "faint", "middle")
    yield text("epoch", right, bottom + 29, "faint", "end")
    yield element("rect", x=_LEFT, y=_TOP, width=_WIDTH, height=_HEIGHT, class_="line")


def _curve(
    values: Sequence[float | None], epochs: Sequence[int], scale: _PanelScale, colour: str
) -> Iterator[str]:
    """Yield a line between finite values, and a mark per value if there are few."""
    path, joined = "", False
    marks = []
    for epoch, value in zip(epochs, values, strict=True):
        if value is not None:
            x, y = scale.across(epoch), scale.down(value)
            path += f"{'L' if joined else 'M'} {points(x, y)} "
            marks.append(element("circle", cx=x, cy=y, r=2.2, fill=colour))
        joined = value is not None
    yield element("path", d=path.rstrip(), **_stroke(colour))
    if len(marks) <= _MAX_MARKS:
        yield from marks


def _stroke(colour: str) -> dict[str, str]:
    return {"fill": "none", "stroke": colour, "stroke_width": "1.8"}
