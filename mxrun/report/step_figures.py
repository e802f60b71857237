"""Least cost of a step on a card, by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import RenderableType
from rich.text import Text

from mxrun.report.figures import bytes_text, milliseconds_text
from mxrun.report.tables import Report, titled_table

# Limit of the table; the rest is summed up in one row. The JSON report is complete.
_MAX_OPERATORS = 12


def step_parts(figures: Report | None) -> Iterator[RenderableType]:
    """Yield a line for each kind of operator in a step on a card, and what all of them take."""
    if figures is None:
        return
    total = figures["total"]
    table = titled_table("a step, at least", "operators")
    table.show_footer = True
    columns: dict[str, Callable[[Report], str]] = {
        "launches": lambda row: f"{row['launches']:,}",
        "moved": lambda row: bytes_text(row["bytes"]),
        "GFLOP": lambda row: f"{row['flops'] / 1e9:,.1f}",
        "floor, ms": lambda row: milliseconds_text(row["floor_ms"]),
    }
    for name, text in columns.items():
        table.add_column(name, text(total), justify="right")
    rows, rest = figures["operators"][:_MAX_OPERATORS], figures["operators"][_MAX_OPERATORS:]
    for row in rows:
        table.add_row(Text(row["what"]), *(text(row) for text in columns.values()))
    if rest:
        names = "launches", "bytes", "flops", "floor_ms"
        others = {name: sum(row[name] for row in rest) for name in names}
        figures_of_rest = (text(others) for text in columns.values())
        table.add_row(f"{len(rest)} others", *figures_of_rest, style="dim")
    yield table
    bodies = total["host_bodies"]
    alone = (
        f"{milliseconds_text(total[key])} ms for {what}"
        for key, what in (
            ("memory_ms", "all bytes"),
            ("compute_ms", "all operations"),
            ("launch_ms", "all launches"),
        )
    )
    yield Text(
        f"The floor is the slowest of three for each operator; alone they are {', '.join(alone)}. "
        "Peaks are the card's, not measured."
        + f" {bodies:,} bodies run on the host."
        * bool(bodies)
    )
