"""Learning curves as SVG: a panel per figure, training as solid and evaluation as dashed lines.

A single run has a colour for each part; of several runs each has a colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.report.curve_panels import (
    LEARNING_RATE,
    Curve,
    CurvePanel,
    curve_panels,
    rates,
    run_names,
    ticks,
)
from mxrun.report.figures import metric_text
from mxrun.report.fitted_table import shortened
from mxrun.report.palette import CURVE_COLOURS, LINE
from mxrun.report.svg import (
    SMALL_SIZE,
    TITLE_SIZE,
    document,
    element,
    grid_line,
    points,
    rectangle,
    text,
    text_width,
)

Report = Mapping[str, Any]

_WIDTH = 380.0
_HEIGHT = 220.0
_LEFT = 64.0
_RIGHT = 20.0
_TOP = 40.0
_BOTTOM = 34.0
_COLUMNS = 2
_MARGIN = 24.0
_HEAD = 48.0
_LINE = 16.0
_SAMPLE = 24.0
_MAX_MARKS = 60
# Minimum length of a panel's title.
_MIN_LETTERS = 8
_DASHES = "5 3"


def curves_svg(report: Report, log: bool | None = None) -> str:
    """Return the SVG document. Deterministic: equal reports give equal bytes.

    log: see `curve_panels`.
    """
    names, panels = run_names(report), curve_panels(report, log)
    several = len(names) > 1
    title = f"{len(names)} runs" if several else names[0]
    if len(found := rates(report)) == 1:
        title = f"{title}, learning rate {found.pop():.6g}"
    notes = [note for run in report["runs"] for note in run["notes"]]
    lines = [*_legend(names)] if several else []
    lines += [text(note, _MARGIN, 0, "faint") for note in notes]
    widths = [2 * _MARGIN + text_width(note, SMALL_SIZE) for note in notes]
    widths += [2 * _MARGIN + _SAMPLE + 6 + text_width(name, SMALL_SIZE) for name in names]
    description = f"Learning curves of {', '.join(names)}"
    return panels_svg((title, description), panels, several, lines, max(widths))


def panels_svg(
    titles: tuple[str, str],
    panels: Sequence[CurvePanel],
    several: bool = False,
    lines: Sequence[str] = (),
    width: float = 0.0,
) -> str:
    """Return a document of panels below each other, two in a row.

    titles: the heading, and the description of the drawing. several: whether curves have the
    colours of their runs. lines: elements below the heading; width: the least one.
    """
    title, description = titles
    parts = [text(title, _MARGIN, 32, "title")]
    for index, line in enumerate(lines):
        parts.append(_moved(line, 0, _HEAD + index * _LINE))
    head = _HEAD + len(lines) * _LINE
    for index, panel in enumerate(panels):
        row, column = divmod(index, _COLUMNS)
        content = "\n".join(("", *_panel(panel, several), ""))
        parts.append(_moved(content, column * _panel_width(), head + row * _panel_height()))
    rows = -(-len(panels) // _COLUMNS)
    columns = min(max(len(panels), 1), _COLUMNS)
    width = max(columns * _panel_width(), width, 2 * _MARGIN + text_width(title, TITLE_SIZE))
    return document(width, head + rows * _panel_height(), description, parts)


def _moved(content: str, x: float, y: float) -> str:
    return element("g", content, transform=f"translate({points(x, y)})")


def _legend(names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each run with its colour, and one that explains the dashes."""
    for number, name in enumerate(names):
        sample = _sample(_MARGIN, -4, _colour(number), False)
        yield sample + text(name, _MARGIN + _SAMPLE + 6, 0, "faint")
    middle = _MARGIN + _SAMPLE + 6 + text_width("train   ", SMALL_SIZE)
    yield "".join(
        (
            _sample(_MARGIN, -4, LINE, False),
            text("train", _MARGIN + _SAMPLE + 6, 0, "faint"),
            _sample(middle, -4, LINE, True),
            text("eval", middle + _SAMPLE + 6, 0, "faint"),
        )
    )


def _colour(number: int) -> str:
    return CURVE_COLOURS[number % len(CURVE_COLOURS)]


def _panel_width() -> float:
    return _LEFT + _WIDTH + _RIGHT


def _panel_height() -> float:
    return _TOP + _HEIGHT + _BOTTOM


@dataclass(frozen=True)
class _PanelScale:
    """Mapping from epochs and values to pixels within a panel."""

    panel: CurvePanel
    first: float
    last: float

    def across(self, epoch: float) -> float:
        """Horizontal position of an epoch, from the left."""
        return _LEFT + (epoch - self.first) / (self.last - self.first) * _WIDTH

    def down(self, value: float) -> float:
        """Vertical position of a value, from the top."""
        return _TOP + (1 - self.panel.axis.position(value)) * _HEIGHT


def _panel(panel: CurvePanel, several: bool) -> Iterator[str]:
    single = panel.first == panel.last
    scale = _PanelScale(panel, panel.first - single, panel.last + single)
    right = _LEFT + _WIDTH
    labelled = [] if several or panel.title == LEARNING_RATE else panel.curves
    for curve in reversed(labelled):
        label = f"{curve.part} {metric_text(curve.last)}"
        yield text(label, right, _TOP - 12, "faint", "end")
        right -= text_width(label, SMALL_SIZE) + 6 + _SAMPLE
        yield _sample(right, _TOP - 16, _colour(curve.is_second), curve.is_second)
        right -= 12
    title = f"{panel.title}, logarithmic" if panel.axis.is_log else panel.title
    letters = int((right - _LEFT) / text_width("m"))
    yield text(shortened(title, max(letters, _MIN_LETTERS)), _LEFT, _TOP - 12, "bold")
    yield from _axes(scale)
    for curve in panel.curves:
        yield from _curve(curve, scale, _colour(curve.run if several else curve.is_second))


def _axes(scale: _PanelScale) -> Iterator[str]:
    right, bottom = _LEFT + _WIDTH, _TOP + _HEIGHT
    for value in scale.panel.axis.ticks(5):
        y = scale.down(value)
        yield grid_line(x1=_LEFT, y1=y, x2=right, y2=y)
        yield text(f"{value:.6g}", _LEFT - 6, y + 4, "faint", "end")
    for epoch in ticks(scale.first, scale.last, 6):
        if epoch == int(epoch):
            yield text(str(int(epoch)), scale.across(epoch), bottom + 16, "faint", "middle")
    yield text(scale.panel.across, right, bottom + 29, "faint", "end")
    frame: dict[str, str | float] = {"fill": "none", "stroke": LINE, "stroke_width": 1.2}
    yield rectangle(x=_LEFT, y=_TOP, width=_WIDTH, height=_HEIGHT, class_="line", **frame)


def _curve(curve: Curve, scale: _PanelScale, colour: str) -> Iterator[str]:
    """Yield a line between finite values, and a mark per value if there are few."""
    series = [
        [(scale.across(epoch), scale.down(value)) for epoch, value in each]
        for each in curve.points()
    ]
    path = " ".join(
        f"{'L' if index else 'M'} {points(x, y)}"
        for each in series
        for index, (x, y) in enumerate(each)
    )
    yield element("path", d=path, **_stroke(colour, curve.is_second))
    if sum(map(len, series)) <= _MAX_MARKS:
        for x, y in (place for each in series for place in each):
            yield element("circle", cx=x, cy=y, r=2.2, fill=colour)


def _sample(x: float, y: float, colour: str, is_dashed: bool) -> str:
    """Return a short line for a legend."""
    return element("line", x1=x, x2=x + _SAMPLE, y1=y, y2=y, **_stroke(colour, is_dashed))


def _stroke(colour: str, is_dashed: bool) -> dict[str, str]:
    stroke = {"fill": "none", "stroke": colour, "stroke_width": "1.8"}
    return {**stroke, "stroke_dasharray": _DASHES} if is_dashed else stroke
