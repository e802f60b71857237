"""Learning curves in a terminal: one panel per metric, drawn with braille dots.

A character holds 2 x 4 dots (Unicode block U+2800). Values of training are a line, values of
evaluation a mark per epoch, so that the two are distinct without colours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from mxrun.report.figures import metric_text

Report = Mapping[str, Any]
Values = Sequence[float | None]

_ROWS = 10
_MAX_COLUMNS = 100
_MIN_COLUMNS = 16
_MARK = "o"
_BRAILLE = 0x2800
# Bit of each dot, by column and row within a character.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def curve_parts(report: Report) -> list[Text | Panel]:
    """Return a title and a panel for every metric with at least one finite value."""
    count = len(report["epochs"])
    title = f"{report['name']}, {count} epoch{'' if count == 1 else 's'}"
    panels = [
        Panel(metric, report["epochs"]) for metric in report["metrics"] if any(finite(metric))
    ]
    return [Text(title, "bold"), *panels]


def finite(metric: Report) -> list[float]:
    """Return the finite values of a metric, of training and evaluation together."""
    return [value for part in ("train", "eval") for value in metric[part] if value is not None]


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest value, widened if they are equal."""
    low, high = min(values), max(values)
    if low < high:
        return low, high
    room = abs(low) / 10 or 1.0
    return low - room, high + room


class Panel:
    """Panel of one metric over the epochs, as wide as the terminal allows."""

    def __init__(self, metric: Report, epochs: Sequence[int]) -> None:
        self.metric, self.epochs = metric, epochs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the metric's last values, the canvas between its bounds, and the epochs below."""
        low, high = bounds(finite(self.metric))
        labels = {0: metric_text(high), _ROWS - 1: metric_text(low)}
        margin = max(map(len, labels.values()))
        columns = max(_MIN_COLUMNS, min(_MAX_COLUMNS, options.max_width - margin - 5))
        yield Text("")
        yield self._head()
        for row, line in enumerate(self._canvas(columns, low, high)):
            yield Text(f"  {labels.get(row, ''):>{margin}} │").append_text(line)
        first, last = str(self.epochs[0]), str(self.epochs[-1])
        yield Text(f"  {'':{margin}} └{'─' * columns}")
        between = columns - len(first) - len(last)
        ends = f"{first}  epoch" if first == last else f"{first}{'epoch':^{between}}{last}"
        yield Text(f"  {'':{margin}}  {ends}", "dim")

    def _head(self) -> Text:
        head = Text(f"  {self.metric['name']}", "bold")
        for part, mark, style in (("train", "⠒⠒", "blue"), ("eval", _MARK, "yellow")):
            values = [value for value in self.metric[part] if value is not None]
            if values:
                head.append(f"   {mark} {part} {metric_text(values[-1])}", f"not bold {style}")
        return head

    def _canvas(self, columns: int, low: float, high: float) -> Iterator[Text]:
        """Yield the rows of the canvas, top first."""
        cells = [[0] * columns for _ in range(_ROWS)]
        for x, y in _line(self._points(self.metric["train"], columns * 2, _ROWS * 4, low, high)):
            cells[y // 4][x // 2] |= _DOTS[x % 2][y % 4]
        marked = {
            point
            for run in self._points(self.metric["eval"], columns, _ROWS, low, high)
            for point in run
        }
        for y, row in enumerate(cells):
            line = Text()
            for x, dots in enumerate(row):
                if (x, y) in marked:
                    line.append(_MARK, "yellow")
                else:
                    line.append(chr(_BRAILLE + dots) if dots else " ", "blue")
            line.rstrip()
            yield line

    def _points(
        self, values: Values, width: int, height: int, low: float, high: float
    ) -> list[list[tuple[int, int]]]:
        """Return the values as dots of a canvas, in runs of consecutive finite values."""
        runs: list[list[tuple[int, int]]] = [[]]
        span = max(1, self.epochs[-1] - self.epochs[0])
        for epoch, value in zip(self.epochs, values, strict=True):
            if value is None:
                runs.append([])
                continue
            x = (epoch - self.epochs[0]) / span * (width - 1)
            y = (high - value) / (high - low) * (height - 1)
            runs[-1].append((round(x), round(y)))
        return [run for run in runs if run]


def _line(runs: Sequence[Sequence[tuple[int, int]]]) -> Iterator[tuple[int, int]]:
    """Yield every dot of the runs, with neighbours joined by straight lines."""
    for run in runs:
        yield run[0]
        for (x, y), (next_x, next_y) in pairwise(run):
            steps = max(abs(next_x - x), abs(next_y - y))
            for step in range(1, steps + 1):
                share = step / steps
                yield round(x + (next_x - x) * share), round(y + (next_y - y) * share)


def ticks(low: float, high: float, limit: int) -> list[float]:
    """Return round numbers from `low` to `high`: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / limit
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]
