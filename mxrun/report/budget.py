"""Tables for a memory budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from mxrun.graph.naming import in_words
from mxrun.report.figures import bytes_text
from mxrun.report.tables import Report, titled_table

# Limit of the table; the rest is summed up in one row. The JSON report is complete.
_MAX_STEPS = 10


def budget_tables(report: Report) -> Iterator[RenderableType]:
    """Yield the budget, the micro-batches, and a table of the recomputed steps of each phase.

    Yields nothing without a budget.
    """
    if report["budget_bytes"] is None:
        return
    if (parts := report["micro_batches"]) > 1:
        batch = report["batch_size"]
        yield Text(f"each batch of {batch} is computed as {parts} of {batch // parts}")
    yield Text(f"budget: {bytes_text(report['budget_bytes'])} ({report['budget_bytes']:,} bytes)")
    for phase, recomputed in report["recompute"].items():
        saved_bytes = recomputed["plain_bytes"] - report["planned_bytes"]
        table = titled_table(
            f"recomputed in {phase}: {recomputed['extra']:.1%} ({recomputed['extra_ms']:.3f} ms) "
            f"longer as predicted, saves {bytes_text(saved_bytes)}"
        )
        table.add_column("step")
        table.add_column("times", justify="right")
        counts = Counter(recomputed["steps"])
        for name in sorted(counts)[:_MAX_STEPS]:
            table.add_row(Text(in_words(name)), str(counts[name]))
        if rest := sorted(counts)[_MAX_STEPS:]:
            others = sum(counts[name] for name in rest)
            table.add_row(f"{len(rest)} others", str(others), style="dim")
        yield table
