"""Output of `init`: what was seen in the data, what was chosen, and the next commands."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from mxrun.report.fitted_table import shortened
from mxrun.report.indented import Indented
from mxrun.report.tables import Report, titled_table

_MAX_CLASSES = 20


def init_tables(report: Report) -> list[Table | InitLines]:
    """Return the table of classes, if there are any, and the lines on the rest."""
    return [*_class_table(report), InitLines(report)]


def _class_table(report: Report) -> Iterator[Table]:
    classes = report["classes"]
    if not classes:
        return
    table = titled_table(f"{len(classes)} classes")
    table.add_column("class", no_wrap=True)
    for part in ("train", "eval"):
        table.add_column(f"{part} records", justify="right")
    for name, counts in list(classes.items())[:_MAX_CLASSES]:
        shown = Text(shortened(name, 40))
        table.add_row(shown, *(f"{counts[part]:,}" for part in ("train", "eval")))
    if len(classes) > _MAX_CLASSES:
        table.add_row(f"and {len(classes) - _MAX_CLASSES} more", "", "")
    yield table


class InitLines:
    """Facts, warnings, choices and next commands, each a wrapped line."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield headings, and the lines below them indented."""
        warnings = [*self.report["warnings"]]
        if self.report["imbalanced"]:
            warnings.append(
                "classes differ much in size: look at balanced_accuracy, and try "
                "train.class_weights=balanced"
            )
        sections = (
            ("seen", self.report["facts"]),
            ("left out", self.report["left_out"]),
            ("decided, and may be doubted", self.report["doubts"]),
            ("to note", warnings),
            (f"written to {self.report['file']}", self.report["choices"]),
            ("next", self.report["next"]),
        )
        for heading, lines in sections:
            if lines:
                yield Text(f"{heading}:")
                yield from map(Indented, lines)
