"""Output of `runs`: a list of runs, and comparisons of some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from mxrun.report.figures import bytes_text, count_text, metric_text
from mxrun.report.fitted_table import shared_widths, shortened
from mxrun.report.printable import printable_line
from mxrun.report.tables import titled_table

Report = Mapping[str, Any]
Cell = Callable[[Report], str]

# Blanks around a column's cells.
_PADDING = 3
_MIN_NAME = 24
# Width of a best figure with the first letters of its metric: "bal… 0.9139 @ 12".
_MIN_VALUE = 16
_MIN_METRIC = 2
_MAX_VALUE = 44
_MAX_KEYS = 40
_ABSENT, _BEST = "-", "best @ epoch"
# Figures of the last evaluation that the list shows.
_MAX_LAST = 3


def list_tables(report: Report) -> list[RunList | Text]:
    """Return the table of `runs`, and a line for each damaged run."""
    problems = [
        Text(f"{printable_line(run['name'])}: {run['problem']}")
        for run in report["runs"]
        if run["problem"]
    ]
    return [RunList(report), *problems]


def comparison_tables(report: Report) -> list[RunComparison]:
    """Return the tables of `runs A B`: metrics, and the config keys that differ."""
    return [RunComparison(report)]


class RunList:
    """Table with a line for each run, with as many columns as fit."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table; the least important columns are left out, then names are shortened."""
        runs = self.report["runs"]
        columns = [(name, list(map(cell, runs))) for name, cell in RUN_COLUMNS.items()]
        names = [str(run["name"]) for run in runs]
        least = min(max(map(len, names)), _MIN_NAME) + _PADDING
        for name in _LESS_IMPORTANT:
            if least + _width(columns) <= options.max_width:
                break
            columns = [column for column in columns if column[0] != name]
        room = max(8, options.max_width - _width(columns) - _PADDING)
        table = titled_table(f"{len(runs)} run{'s' * (len(runs) > 1)} in {self.report['runs_dir']}")
        table.add_column("run", no_wrap=True)
        for name, _ in columns:
            table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
        for number, name in enumerate(names):
            cells = (Text(cells[number]) for _, cells in columns)
            table.add_row(Text(shortened(printable_line(name), room)), *cells)
        yield table


def _width(columns: Sequence[tuple[str, Sequence[str]]]) -> int:
    """Return the width of columns with their padding, and of the table's edges."""
    return 2 + sum(_PADDING + max(map(len, (name, *cells))) for name, cells in columns)


def _epochs(run: Report) -> str:
    planned = run["planned_epochs"]
    return f"{run['epochs']}/{planned}" if planned is not None else str(run["epochs"])


def _best(run: Report) -> str:
    best = run["best"]
    if best is None:
        return _ABSENT
    saved = "" if best["checkpoint"] is not None else ", not saved"
    return f"{best['metric']} {metric_text(best['value'])} @ {best['epoch']}{saved}"


def _last(run: Report) -> str:
    """Return the first figures of the last evaluation; of equal ones, such as a loss and its
    metric, the first.
    """
    figures: dict[str, str] = {}
    for name, value in sorted(run["last"].items(), key=lambda item: item[0] != "loss"):
        figures.setdefault(metric_text(value), name)
    texts = [f"{name} {value}" for value, name in figures.items()]
    return ", ".join(texts[:_MAX_LAST]) or _ABSENT


def _written(run: Report) -> str:
    return str(run["written"])[:16].replace("T", " ")


def _parameters(run: Report) -> str:
    return _ABSENT if run["parameters"] is None else count_text(run["parameters"])


def _arena(run: Report) -> str:
    return _ABSENT if run["arena_bytes"] is None else bytes_text(run["arena_bytes"])


RUN_COLUMNS: Mapping[str, Cell] = {
    "state": lambda run: str(run["state"]),
    "epochs": _epochs,
    _BEST: _best,
    "last": _last,
    "parameters": _parameters,
    "arena": _arena,
    "on disk": lambda run: bytes_text(run["bytes"]),
    "written": _written,
}
_LESS_IMPORTANT = ("last", "arena", "parameters", "on disk", "written")
_LEFT = ("state", _BEST, "last")


class RunComparison:
    """Tables with a column for each run; runs that do not fit follow in further tables."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the tables of results and of differing keys."""
        runs = self.report["runs"]
        yield from self._tables("results", "what", _results(runs), options.max_width)
        differences = [(each["key"], each["values"]) for each in self.report["differences"]]
        if not differences:
            yield Text("The configs are the same.")
            return
        shown = differences[:_MAX_KEYS]
        yield from self._tables("config", "key", shown, options.max_width)
        if len(differences) > _MAX_KEYS:
            yield Text(f"and {len(differences) - _MAX_KEYS} more keys; --json lists all")

    def _tables(
        self, title: str, heading: str, rows: Sequence[tuple[str, Sequence[Any]]], width: int
    ) -> RenderResult:
        names = [str(run["name"]) for run in self.report["runs"]]
        label = min(max(len(heading), *(len(name) for name, _ in rows)), width // 2)
        room = width - label - _PADDING - 2
        each = max(1, room // (_MIN_VALUE + _PADDING))
        for start in range(0, len(names), each):
            group = range(start, min(start + each, len(names)))
            columns = [
                [_ABSENT if row[at] is None else str(row[at]) for _, row in rows] for at in group
            ]
            natural = [
                min(_MAX_VALUE, max(map(len, (names[at], *cells))))
                for at, cells in zip(group, columns, strict=True)
            ]
            widths = shared_widths(natural, room - _PADDING * len(group))
            table = titled_table(title)
            table.add_column(heading, no_wrap=True)
            for at, width in zip(group, widths, strict=True):
                heading_text = Text(shortened(names[at], width))
                table.add_column(heading_text, justify="right", no_wrap=True)
            for (name, _), *cells in zip(rows, *columns, strict=True):
                fit = _shortened_best if name == _BEST else shortened
                texts = (Text(fit(cell, width)) for cell, width in zip(cells, widths, strict=True))
                table.add_row(Text(shortened(printable_line(name), label)), *texts)
            yield table


def _shortened_best(cell: str, width: int) -> str:
    """Return a best figure of at most `width` characters: only the metric's name is shortened."""
    name, blank, figure = cell.partition(" ")
    room = width - len(blank + figure)
    if len(name) <= room or room < _MIN_METRIC:
        return shortened(cell, width)
    return f"{name[: room - 1]}…{blank}{figure}"


def _results(runs: Sequence[Report]) -> list[tuple[str, list[str | None]]]:
    figures = dict.fromkeys(name for run in runs for name in run["last"])
    last = [
        (name, [metric_text(run["last"][name]) if name in run["last"] else None for run in runs])
        for name in figures
    ]
    return [
        ("state", [str(run["state"]) for run in runs]),
        ("epochs", list(map(_epochs, runs))),
        (_BEST, list(map(_best, runs))),
        *last,
        ("parameters", list(map(_parameters, runs))),
        ("arena", list(map(_arena, runs))),
        ("on disk", [bytes_text(run["bytes"]) for run in runs]),
        ("written", list(map(_written, runs))),
    ]
