"""Confusion matrices: small ones in full, the most frequent mistakes of large ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.printable import printable_line
from mxrun.report.tables import titled_table

_MAX_COLUMNS = 16
_MAX_MISTAKES = 12
# Characters of all headings together, and of one at least.
_MAX_HEADINGS, _MIN_HEADING = 48, 4


def confusion_tables(evaluation: Mapping[str, Any], classes: Sequence[str] = ()) -> list[Table]:
    """Return a table for each confusion matrix among the metrics of an evaluation.

    classes: names of rows and columns; without them, these are numbers.
    """
    return [
        confusion_table(name, value, classes)
        for name, value in evaluation.items()
        if isinstance(value, Sequence)
    ]


def confusion_table(
    name: str, counts: Sequence[Sequence[float | None]], classes: Sequence[str] = ()
) -> Table:
    """Return a table of counts by label and predicted class; None (not finite) is shown as nan."""
    # In a network with several losses, another one may have other classes.
    named = len(classes) == len(counts)
    shown = map(printable_line, classes) if named else map(str, range(len(counts)))
    names = [Text(each) for each in shown]
    if len(counts) > _MAX_COLUMNS:
        mistakes = sorted(
            (-count, label, predicted)
            for label, row in enumerate(counts)
            for predicted, count in enumerate(row)
            if count and predicted != label
        )
        return mistakes_table(
            name, [(label, best, -count) for count, label, best in mistakes], names
        )
    table = titled_table(name)
    table.add_column("label \\ predicted", justify="right")
    for predicted_name in _headings(names):
        table.add_column(predicted_name, justify="right")
    for label, row in enumerate(counts):
        cells = [
            Text(_count(count), "bold" if predicted == label else "" if count else "dim")
            for predicted, count in enumerate(row)
        ]
        table.add_row(names[label], *cells)
    return table


def mistakes_table(
    name: str, mistakes: Sequence[tuple[int, int, float]], names: Sequence[Text]
) -> Table:
    """Return a table of the most frequent mistakes: label, predicted class and count of each."""
    table = titled_table(f"{name}: mistakes")
    for heading in ("label", "predicted as", "count"):
        table.add_column(heading, justify="right")
    for label, predicted, count in mistakes[:_MAX_MISTAKES]:
        table.add_row(names[label], names[predicted], _count(count))
    if len(mistakes) > _MAX_MISTAKES:
        rest = sum(count for _, _, count in mistakes[_MAX_MISTAKES:])
        table.add_row("others", "", _count(rest))
    return table


def _headings(names: Sequence[Text]) -> list[Text]:
    """Return the names of the columns; long ones are cut, because the rows have them in full."""
    longest = max(_MIN_HEADING, _MAX_HEADINGS // max(len(names), 1))
    return [
        name if len(name) <= longest else Text(f"{name.plain[: longest - 1]}…") for name in names
    ]


def _count(count: float | None) -> str:
    return "nan" if count is None else f"{count:,.10g}"
