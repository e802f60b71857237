"""Memory for people: the arena, its peak and its course over a step, and what lies outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mxrun.report.budget import budget_tables
from mxrun.report.figures import bytes_text
from mxrun.report.tables import Report, titled_table
from mxrun.report.timeline import Timeline

# Longer lists are for machines; what is left stands in one row.
_MOST_LIVE = 30
_MOST_LIBRARIES = 4
# The sizes that an arena could have, by their keys in a report.
FIGURES = {
    "planned_bytes": "planned",
    "lower_bound_bytes": "lower bound of this order",
    "free_list_bytes": "whole blocks handed on, as in MXNet",
    "in_place_only_bytes": "in place, without reuse",
    "naive_bytes": "every tensor its own",
}


def memory_tables(report: Report) -> list[RenderableType]:
    """`inspect-memory`: the arena against its bounds, its classes, its peak, refused hints."""
    return [
        *_arena(report),
        *budget_tables(report),
        _classes(report["classes"]),
        *_timelines(report["timeline"]),
        Text(),
        _live(report["peak"], report["timeline"]),
        *_refused(report["hints"]),
        *_outside(report["outside"]),
    ]


def _arena(report: Report) -> list[RenderableType]:
    table = titled_table("arena")
    table.add_column("counted")
    table.add_column("size", justify="right")
    table.add_column("bytes", justify="right")
    for key, label in FIGURES.items():
        table.add_row(label, bytes_text(report[key]), f"{report[key]:,}")
    proved = "as small as this order allows" if report["proved_optimal"] else _gap(report)
    return [table, Text(f"{proved}; planned in {report['planning_ms']:.1f} ms")]


def _gap(report: Report) -> str:
    """What a smaller arena might save; less than it would have above the lower bound."""
    proved = report["proved_bytes"]
    gap = report["planned_bytes"] - proved
    return f"at most {bytes_text(gap)} ({gap / proved:.2%}) too large"


def _classes(classes: Mapping[str, Mapping[str, int]]) -> Table:
    table = titled_table("classes")
    table.add_column("class")
    table.add_column("all tensors", justify="right")
    table.add_column("at the peak", justify="right")
    for name, figures in classes.items():
        total, peak = bytes_text(figures["total_bytes"]), bytes_text(figures["peak_bytes"])
        table.add_row(name.replace("_", " "), total, peak)
    return table


def _timelines(timeline: Mapping[str, Mapping[str, Any]]) -> Iterator[RenderableType]:
    for phase, course in timeline.items():
        yield Text(f"\nbytes alive over the {len(course['bytes'])} steps of {phase}", "bold")
        yield Timeline(course["operators"], course["bytes"])


def _live(peak: Mapping[str, Any], timeline: Mapping[str, Any]) -> Table:
    """What is alive at the peak, and why; lifetimes by the names of the steps."""
    operators = timeline[peak["phase"]]["operators"]
    table = titled_table(
        f"alive at the peak: {peak['phase']}, {peak['title']}, {peak['bytes']:,} bytes"
    )
    table.add_column("tensor")
    table.add_column("bytes", justify="right")
    table.add_column("offset", justify="right")
    table.add_column("from")
    table.add_column("to")
    table.add_column("why")
    for live in peak["live"][:_MOST_LIVE]:
        always = live["last"] - live["first"] == len(operators) - 1
        table.add_row(
            Text(live["tensor"]),
            f"{live['bytes']:,}",
            f"{live['offset']:,}",
            "always" if always else Text(operators[live["first"]]),
            "" if always else Text(operators[live["last"]]),
            Text(live["reason"]),
        )
    if rest := peak["live"][_MOST_LIVE:]:
        nbytes = sum(live["bytes"] for live in rest)
        table.add_row(f"{len(rest)} others", f"{nbytes:,}", style="dim")
    return table


def _refused(hints: Sequence[Mapping[str, str]]) -> Iterator[Table]:
    """Each hint once, though training and evaluation refuse the same."""
    keys = ("step", "source", "target", "reason")
    refused = dict.fromkeys(tuple(hint[key] for key in keys) for hint in hints if hint["reason"])
    if refused:
        table = titled_table("in-place hints not taken")
        for column in ("step", "from", "to", "reason"):
            table.add_column(column)
        for row in refused:
            table.add_row(*map(Text, row))
        yield table


def _outside(outside: Mapping[str, Any]) -> Iterator[RenderableType]:
    if not outside:
        yield Text("What lies outside the arena cannot be measured: there is no /proc/self/smaps.")
        return
    table = titled_table("outside the arena, measured")
    table.show_footer = True
    table.add_column("what", "all")
    table.add_column("size", bytes_text(outside["total_bytes"]), justify="right")
    libraries = list(outside["libraries"].items())
    for name, nbytes in libraries[:_MOST_LIBRARIES]:
        table.add_row(Text(name), bytes_text(nbytes))
    others = sum(nbytes for _, nbytes in libraries[_MOST_LIBRARIES:])
    table.add_row("interpreter and other libraries", bytes_text(others))
    table.add_row("compiled kernels", bytes_text(outside["compiled_bytes"]))
    table.add_row("objects of interpreter and libraries", bytes_text(outside["heap_bytes"]))
    table.add_row("main thread's stack", bytes_text(outside["stack_bytes"]))
    table.add_row("the compute team's threads", bytes_text(outside["team_bytes"]))
    yield table
    compiled = (
        " The compiler was needed just now; processes that find its results kept do without it."
    )
    yield Text(
        "Resident now, in this process, which has bound this plan but has no arena "
        "(/proc/self/smaps). A run's records come on top." + compiled * outside["compiler_ran"]
    )
