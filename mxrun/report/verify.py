"""Tables of `verify`, made from its JSON report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.tables import titled_table


def verify_tables(report: Mapping[str, Any]) -> list[Table | Text]:
    """Return one line per plan variant, then the verdict."""
    title = f"{report['name']}: {report['steps']} steps of each variant"
    table = titled_table(title, "variant", "promised", "found")
    for variant in report["variants"]:
        found = "the same bits"
        if variant["tensor"]:
            found = f"{variant['difference']:.1e} in {variant['tensor']}"
        style = "green" if variant["passed"] else "bold red"
        table.add_row(Text(variant["variant"]), variant["promised"], Text(found, style))
    broken = sum(not variant["passed"] for variant in report["variants"])
    promises = {variant["promised"] for variant in report["variants"]}
    within = " or ".join(sorted(each for each in promises if each.startswith("within")))
    same = f"{report['name']} gives the same bits wherever they are promised"
    verdict = Text(f"{same}, and {within} elsewhere" if within else same, "bold green")
    if broken:
        verdict = Text(f"{broken} of {len(report['variants'])} promises are broken", "bold red")
    return [table, verdict]
