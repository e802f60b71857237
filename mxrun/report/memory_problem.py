"""`inspect-memory --problem` for people: the arena against its bound, and where the blocks lie."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text
from mxrun.report.tables import Report, titled_table

# Longer lists are for machines; what is left stands in one row.
_MAX_BLOCKS = 30


def problem_tables(report: Report) -> list[RenderableType]:
    """The figures of the arena, the lowest blocks, and whether the arena could be smaller."""
    table = titled_table("arena")
    table.add_column("counted")
    table.add_column("size", justify="right")
    table.add_column("bytes", justify="right")
    for label, key in (("planned", "planned_bytes"), ("lower bound", "lower_bound_bytes")):
        table.add_row(label, bytes_text(report[key]), f"{report[key]:,}")
    proved = "as small as can be"
    if not report["proved_optimal"]:
        proved = f"at most {report['gap_bytes']:,} bytes too large"
    outcome = Text(f"{proved}; planned in {report['planning_ms']:.1f} ms")
    return [Text(report["name"]), table, outcome, _blocks(report)]


def _blocks(report: Report) -> Table:
    """The blocks by offset."""
    table = titled_table("blocks")
    table.add_column("id")
    table.add_column("offset", justify="right")
    by_offset = sorted(report["offsets"].items(), key=lambda block: block[1])
    for name, offset in by_offset[:_MAX_BLOCKS]:
        table.add_row(Text(name), f"{offset:,}")
    if len(by_offset) > _MAX_BLOCKS:
        table.add_row(f"{len(by_offset) - _MAX_BLOCKS} others", "", style="dim")
    return table
