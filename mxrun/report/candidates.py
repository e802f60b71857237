"""Table of autotuned steps that do not run on the preferred kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.figures import milliseconds_text
from mxrun.report.tables import titled_table

# Limit of the table; the JSON report has all rows.
_MAX_ROWS = 20


def candidates_tables(operators: Sequence[Mapping[str, Any]]) -> list[Table | Text]:
    """Return one row per step with a kernel other than the preferred one, largest saving first.

    operators: values of `OperatorTime.to_json`. The list is empty if no candidates were timed.
    """
    timed = [row for row in operators if row["candidates"]]
    if not timed:
        return []
    changed = [row for row in timed if row["candidates"][0]["implementation"] != _selected(row)]
    summary = Text(
        f"Candidates were timed for {len(timed)} of {len(operators)} steps; {len(changed)} run on "
        "a kernel other than the preferred one."
    )
    if not changed:
        return [summary]
    named = ("operator", "implementation", "in place of")
    table = titled_table("kernels selected by timing", names=named)
    for name in named:
        table.add_column(name, no_wrap=True)
    for name in ("ms", "preferred, ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted(changed, key=_saving_ms, reverse=True)[:_MAX_ROWS]:
        preferred = row["candidates"][0]
        names = (row["name"], row["implementation"], preferred["implementation"])
        times = (_selected_ms(row), preferred["ms"])
        table.add_row(*map(Text, names), *map(milliseconds_text, times))
    return [table, summary]


def _selected(row: Mapping[str, Any]) -> str:
    return str(row["implementation"])


def _selected_ms(row: Mapping[str, Any]) -> float:
    """Return the time of the selected kernel in ms.

    A combination of parts may not have been timed as such; the fastest candidate stands for it.
    """
    times = {each["implementation"]: each["ms"] for each in row["candidates"]}
    return float(times.get(_selected(row), min(times.values())))


def _saving_ms(row: Mapping[str, Any]) -> float:
    return float(row["candidates"][0]["ms"]) - _selected_ms(row)
