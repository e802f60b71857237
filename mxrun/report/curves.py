"""Learning curves in a terminal: a panel per figure, drawn with braille dots.

A character holds 2 x 4 dots (Unicode block U+2800). Values of training are a line, values of
evaluation a mark per epoch, so that the two are distinct without colours. With several runs each
has a colour, and a letter as its mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from mxrun.report.curve_panels import (
    LEARNING_RATE,
    Curve,
    CurvePanel,
    curve_panels,
    rates,
    run_names,
)
from mxrun.report.fitted_table import shortened_apart
from mxrun.report.palette import CURVE_COLOURS

Report = Mapping[str, Any]

_ROWS = 10
_MAX_COLUMNS = 100
_MIN_COLUMNS = 16
# Width from which two panels stand side by side.
_WIDE = 150
_GAP = 4
_MARK = "o"
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LINE = "⠒⠒"
_BRAILLE = 0x2800
# Bit of each dot, by column and row within a character.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def curve_parts(report: Report, log: bool | None = None) -> list[Text | CurveGrid]:
    """Return a title, what the marks mean, and the panels; `log`: see `curve_panels`."""
    names = run_names(report)
    panels = [TerminalPanel(panel, names) for panel in curve_panels(report, log)]
    parts: list[Text | CurveGrid] = [Text(_title(report), "bold")]
    if any(curve.part == "eval" for panel in panels for curve in panel.panel.curves):
        mark = "a letter" if len(names) > 1 else _MARK
        parts.append(Text(f"training is a line, evaluation {mark}", "dim"))
    return [*parts, CurveGrid(panels)]


def _title(report: Report) -> str:
    runs, found = report["runs"], rates(report)
    if len(runs) == 1:
        count = len(runs[0]["epochs"])
        title = f"{runs[0]['name']}, {count} epoch{'' if count == 1 else 's'}"
    else:
        title = f"{len(runs)} runs"
    return f"{title}, learning rate {found.pop():.6g}" if len(found) == 1 else title


class CurveGrid:
    """Panels below each other, or in two columns on a wide console."""

    def __init__(self, panels: Sequence[TerminalPanel]) -> None:
        self.panels = panels

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of all panels, without blanks at their ends."""
        columns = 2 if options.max_width >= _WIDE and len(self.panels) > 1 else 1
        width = (options.max_width - _GAP * (columns - 1)) // columns
        for start in range(0, len(self.panels), columns):
            lines = [panel.lines(width) for panel in self.panels[start : start + columns]]
            yield Text("")
            for parts in zip_longest(*lines, fillvalue=Text("")):
                row = Text()
                for column, part in enumerate(parts):
                    row.append(" " * (column * (width + _GAP) - len(row)))
                    row.append_text(part)
                row.rstrip()
                yield row


class TerminalPanel:
    """Panel of one figure over the epochs."""

    def __init__(self, panel: CurvePanel, names: Sequence[str]) -> None:
        self.panel, self.names = panel, names

    def lines(self, width: int) -> list[Text]:
        """Return the legend, the canvas between its bounds, and the epochs below."""
        axis = self.panel.axis
        labels = {0: self.panel.text(axis.high), _ROWS - 1: self.panel.text(axis.low)}
        margin = max(map(len, labels.values()))
        columns = max(_MIN_COLUMNS, min(_MAX_COLUMNS, width - margin - 5))
        lines = self._legend(columns + margin + 3)
        for row, line in enumerate(self._canvas(columns)):
            lines.append(Text(f"  {labels.get(row, ''):>{margin}} │").append_text(line))
        first, last = str(self.panel.first), str(self.panel.last)
        lines.append(Text(f"  {'':{margin}} └{'─' * columns}"))
        between = columns - len(first) - len(last)
        ends = f"{first}  epoch" if first == last else f"{first}{'epoch':^{between}}{last}"
        lines.append(Text(f"  {'':{margin}}  {ends}", "dim"))
        return lines

    def _legend(self, width: int) -> list[Text]:
        """Return the title with the last values; a line for each run if there are several."""
        title = f"  {self.panel.title}{', logarithmic' if self.panel.axis.is_log else ''}"
        if len(self.names) == 1:
            head = Text(title, "bold")
            for curve in self.panel.curves:
                mark = _MARK if curve.part == "eval" else _LINE
                style = f"not bold {_style(curve, several=False)}"
                head.append(f"   {mark} {self._figure(curve)}", style)
            return [head]
        figures: dict[int, str] = {}
        for curve in self.panel.curves:
            figures[curve.run] = f"{figures.get(curve.run, '')}   {self._figure(curve)}"
        room = max(8, width - 4 - max(map(len, figures.values())))
        forms = shortened_apart(self.names, room)
        names = [forms[name] for name in self.names]
        longest = max(map(len, names))
        return [
            Text(title, "bold"),
            *(
                Text(
                    f"  {_letter(run)} {names[run]:<{longest}}{text}",
                    CURVE_COLOURS[run % len(CURVE_COLOURS)],
                )
                for run, text in figures.items()
            ),
        ]

    def _figure(self, curve: Curve) -> str:
        """Return the part and the last value of a curve."""
        part = "" if self.panel.title == LEARNING_RATE else f"{curve.part} "
        return f"{part}{self.panel.text(curve.last)}"

    def _canvas(self, columns: int) -> Iterator[Text]:
        """Yield the rows of the canvas, top first."""
        several = len(self.names) > 1
        dots = [[0] * columns for _ in range(_ROWS)]
        styles = [[""] * columns for _ in range(_ROWS)]
        marks: dict[tuple[int, int], tuple[str, str]] = {}
        evaluated = {curve.run for curve in self.panel.curves if curve.part == "eval"}
        for curve in self.panel.curves:
            style = _style(curve, several)
            if curve.part == "train":
                for x, y in _joined(self._places(curve, columns * 2, _ROWS * 4)):
                    dots[y // 4][x // 2] |= _DOTS[x % 2][y % 4]
                    styles[y // 4][x // 2] = style
            mark = _letter(curve.run) if several else _MARK
            places = [place for run in self._places(curve, columns, _ROWS) for place in run]
            if curve.part == "eval":
                marks |= dict.fromkeys(places, (mark, style))
            elif several and curve.run not in evaluated:
                marks[places[-1]] = (mark, style)
        for y in range(_ROWS):
            line = Text()
            for x in range(columns):
                if (x, y) in marks:
                    line.append(*marks[x, y])
                else:
                    line.append(chr(_BRAILLE + dots[y][x]) if dots[y][x] else " ", styles[y][x])
            line.rstrip()
            yield line

    def _places(self, curve: Curve, width: int, height: int) -> list[list[tuple[int, int]]]:
        """Return the values as dots of a canvas, in series of consecutive finite values."""
        span = max(1, self.panel.last - self.panel.first)
        return [
            [
                (
                    round((epoch - self.panel.first) / span * (width - 1)),
                    round((1 - self.panel.axis.position(value)) * (height - 1)),
                )
                for epoch, value in series
            ]
            for series in curve.points()
        ]


def _letter(run: int) -> str:
    return _LETTERS[run % len(_LETTERS)]


def _style(curve: Curve, several: bool) -> str:
    """Return the colour of a run; of a part, if there is only one run."""
    return _colour(curve.run if several else curve.part == "eval")


def _colour(number: int) -> str:
    return CURVE_COLOURS[number % len(CURVE_COLOURS)]


def _joined(series: Sequence[Sequence[tuple[int, int]]]) -> Iterator[tuple[int, int]]:
    """Yield every dot of the series, with neighbours joined by straight lines."""
    for places in series:
        yield places[0]
        for (x, y), (next_x, next_y) in pairwise(places):
            steps = max(abs(next_x - x), abs(next_y - y))
            for step in range(1, steps + 1):
                share = step / steps
                yield round(x + (next_x - x) * share), round(y + (next_y - y) * share)
