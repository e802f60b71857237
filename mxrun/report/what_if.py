"""Tables of `inspect-memory --what-if`: memory and time of other settings."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from mxrun.report.figures import bytes_text, milliseconds_text
from mxrun.report.tables import Report, titled_table

_UNMEASURED = " (for a common server, until `mxrun bench` has measured this machine)"


def what_if_tables(report: Report) -> Iterator[RenderableType]:
    """Yield the changes, largest saving per time first; nothing without `--what-if`."""
    found = report["what_if"]
    if found is None:
        return
    step_ms = milliseconds_text(found["step_ms"])
    table = titled_table(
        f"what if: {bytes_text(report['planned_bytes'])} and, as predicted, {step_ms} ms a step",
        names=("change", "with"),
        least_important=("a sample",),
    )
    table.add_column("change", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("a sample", justify="right", no_wrap=True)
    table.add_column("with", no_wrap=True)
    for change in found["changes"]:
        table.add_row(*map(Text, change_cells(change)))
    yield table
    note = "" if found["measured"] else _UNMEASURED
    yield Text(f"Each line is planned alone; times are predicted{note}.")
    if any(change["config"].startswith("memory.budget=") for change in found["changes"]):
        yield Text(
            "A budget may be met by recomputing other steps than the one named, in less time."
        )


def change_cells(change: Report) -> tuple[str, ...]:
    """Return a change in words: its name, its bytes, its time by step and by sample, its option."""
    return (
        change["change"],
        _signed(bytes_text(abs(change["saved_bytes"])), -change["saved_bytes"]),
        _signed(f"{milliseconds_text(abs(change['extra_ms']))} ms", change["extra_ms"]),
        f"{change['extra']:+.1%}",
        change["config"],
    )


def _signed(text: str, value: float) -> str:
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{text}"
