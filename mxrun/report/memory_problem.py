"""Tables of `inspect-memory --problem`: the arena, its lower bound, and the offsets."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text
from mxrun.report.tables import Report, titled_table

# Limit of the list; the JSON report is complete.
_MAX_BLOCKS = 30


def problem_tables(report: Report) -> list[RenderableType]:
    """Return the figures of the arena, its optimality, and the blocks of lowest offset."""
    table = titled_table("arena")
    table.add_column("counted")
    table.add_column("size", justify="right")
    table.add_column("bytes", justify="right")
    for label, key in (("planned", "planned_bytes"), ("lower bound", "lower_bound_bytes")):
        table.add_row(label, bytes_text(report[key]), f"{report[key]:,}")
    proved = "proved optimal"
    if not report["proved_optimal"]:
        proved = f"at most {report['gap_bytes']:,} bytes above the optimum"
    outcome = Text(f"{proved}; planned in {report['planning_ms']:.1f} ms")
    return [Text(report["name"]), table, outcome, _blocks(report)]


def _blocks(report: Report) -> Table:
    """Return a table of the blocks by offset."""
    table = titled_table("blocks")
    table.add_column("id")
    table.add_column("offset", justify="right")
    by_offset = sorted(report["offsets"].items(), key=lambda block: block[1])
    for name, offset in by_offset[:_MAX_BLOCKS]:
        table.add_row(Text(name), f"{offset:,}")
    if len(by_offset) > _MAX_BLOCKS:
        table.add_row(f"{len(by_offset) - _MAX_BLOCKS} others", "", style="dim")
    return table
