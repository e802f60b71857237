"""Timed candidates for people: which steps do not run on the kernel that is preferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.figures import milliseconds_text
from mxrun.report.tables import titled_table

# Longer tables are for machines.
_MAX_ROWS = 20


def candidates_tables(operators: Sequence[Mapping[str, Any]]) -> list[Table | Text]:
    """One row per step whose kernel is another than the preferred, those that win most first.

    `operators` are `OperatorTime.to_json`'s. Nothing where no candidates were timed.
    """
    timed = [row for row in operators if row["candidates"]]
    if not timed:
        return []
    changed = [row for row in timed if row["candidates"][0]["implementation"] != _taken(row)]
    told = Text(
        f"Candidates were timed for {len(timed)} of {len(operators)} steps; {len(changed)} run on "
        "another kernel than the preferred one."
    )
    if not changed:
        return [told]
    table = titled_table("kernels taken for their times")
    for name in ("operator", "implementation", "in place of"):
        table.add_column(name, overflow="fold")
    for name in ("ms", "preferred, ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted(changed, key=_to_win, reverse=True)[:_MAX_ROWS]:
        preferred = row["candidates"][0]
        names = (row["name"], row["implementation"], preferred["implementation"])
        times = (_taken_ms(row), preferred["ms"])
        table.add_row(*map(Text, names), *map(milliseconds_text, times))
    return [table, told]


def _taken(row: Mapping[str, Any]) -> str:
    return str(row["implementation"])


def _taken_ms(row: Mapping[str, Any]) -> float:
    """What the kernel taken took; a combination of parts may not have been timed as such."""
    times = {each["implementation"]: each["ms"] for each in row["candidates"]}
    return float(times.get(_taken(row), min(times.values())))


def _to_win(row: Mapping[str, Any]) -> float:
    return float(row["candidates"][0]["ms"]) - _taken_ms(row)
