"""Tables of `verify`, made from its JSON report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text


def verify_tables(report: Mapping[str, Any]) -> list[Table | Text]:
    """Return one line per plan variant, then the verdict."""
    table = Table(
        title=Text(f"{report['name']}: {report['steps']} steps in each way", "bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for column in ("way", "promised", "found"):
        table.add_column(column)
    for way in report["ways"]:
        found = "the same bits"
        if way["tensor"]:
            found = f"{way['difference']:.1e} in {way['tensor']}"
        style = "green" if way["passed"] else "bold red"
        table.add_row(Text(way["way"]), way["promised"], Text(found, style))
    broken = sum(not way["passed"] for way in report["ways"])
    promises = {way["promised"] for way in report["ways"]}
    within = " or ".join(sorted(each for each in promises if each.startswith("within")))
    same = f"{report['name']} gives the same bits wherever they are promised"
    verdict = Text(f"{same}, and {within} elsewhere" if within else same, "bold green")
    if broken:
        verdict = Text(f"{broken} of {len(report['ways'])} promises are broken", "bold red")
    return [table, verdict]
