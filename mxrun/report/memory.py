"""Tables of `inspect-memory`: arena, live bytes by step, peak, and memory outside the arena."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mxrun.graph.naming import in_words
from mxrun.planner.hint import CONCAT_IN_PLACE
from mxrun.report.budget import budget_tables
from mxrun.report.figures import bytes_text
from mxrun.report.step_figures import step_parts
from mxrun.report.tables import Report, titled_table
from mxrun.report.timeline import Timeline
from mxrun.report.what_if import what_if_tables

# Limits of the lists; the rest is summed up in one row. The JSON report is complete.
_MAX_LIVE = 30
_MAX_REFUSED = 10
_MAX_LIBRARIES = 4
# Labels of arena sizes by their keys in a report.
ARENA_SIZES = {
    "planned_bytes": "planned",
    "lower_bound_bytes": "lower bound of this schedule",
    "free_list_bytes": "free list of blocks, as in MXNet",
    "in_place_only_bytes": "in place, without reuse",
    "naive_bytes": "no memory shared",
}


def memory_tables(report: Report) -> list[RenderableType]:
    """Return the arena with its bounds, its classes, its peak, refused hints, and memory outside
    it.
    """
    return [
        *_arena(report),
        *budget_tables(report),
        _classes(report["classes"]),
        *_timelines(report),
        Text(),
        _live(report),
        *_refused(report["hints"]),
        *what_if_tables(report),
        *step_parts(report["step"]),
        *_resident_memory(report["outside"]),
    ]


def above_limit_message(report: Report, limit: int) -> str:
    """Return the message for an arena above a limit, with the excess and the step of the peak."""
    planned, peak = report["planned_bytes"], report["peak"]
    return (
        f"{report['name']} plans {bytes_text(planned)} ({planned:,} bytes), "
        f"{bytes_text(planned - limit)} above the limit of {limit:,} bytes; "
        f"{peak['title']} in {peak['phase']} sets the peak"
    )


def _arena(report: Report) -> list[RenderableType]:
    table = titled_table("arena")
    table.add_column("counted")
    table.add_column("size", justify="right")
    table.add_column("bytes", justify="right")
    for key, label in ARENA_SIZES.items():
        table.add_row(label, bytes_text(report[key]), f"{report[key]:,}")
    proved = (
        "proved optimal for this schedule, fragmentation 0.00%"
        if report["proved_optimal"]
        else _gap(report)
    )
    proof = Text(f"{proved}; planned in {report['planning_ms']:.1f} ms")
    order = Text(_order(report))
    return [table, *_contexts(report), proof, order, *_checkpoints(report["checkpoints"])]


def _contexts(report: Report) -> list[Text]:
    """Return the share of each of several contexts, or that of a rank is shown."""
    if report["ranks"] > 1:
        return [Text(f"one of {report['ranks']} ranks, the first, which needs most")]
    if report["contexts"] == 1:
        return []
    each = f"{bytes_text(report['arena_bytes'])} ({report['arena_bytes']:,} bytes)"
    return [Text(f"{report['contexts']} contexts with an arena of {each} each, as shown below")]


def _checkpoints(saving: Mapping[str, Any] | None) -> list[Text]:
    """Return the memory with which checkpoints are written while the next steps run."""
    if saving is None:
        return []
    copy = f"a copy of {bytes_text(saving['copy_bytes'])} ({saving['copy_bytes']:,} bytes)"
    if saving["in_background"]:
        return [Text(f"checkpoints: written beside the steps, from {copy} outside of the arena")]
    return [Text(f"checkpoints: written between steps, as the budget has no room for {copy}")]


def _order(report: Report) -> str:
    """Return the name of the schedule and a bound on the saving of any other."""
    order = f"schedule: {report['order'][report['peak']['phase']]}"
    lower_bound, planned = report["any_order_bytes"], report["planned_bytes"]
    if lower_bound is None:
        return order
    if lower_bound == planned:
        return f"{order}; no other needs less memory"
    return f"{order}; another may save at most {bytes_text(planned - lower_bound)}"


def _gap(report: Report) -> str:
    """Return an upper bound on the saving of a better placement."""
    proved = report["proved_bytes"]
    gap = report["planned_bytes"] - proved
    return f"at most {bytes_text(gap)} ({gap / proved:.2%}) above the optimum"


def _classes(classes: Mapping[str, Mapping[str, int]]) -> Table:
    table = titled_table("classes")
    table.add_column("class")
    table.add_column("all tensors", justify="right")
    table.add_column("at the peak", justify="right")
    for name, figures in classes.items():
        total, peak = bytes_text(figures["total_bytes"]), bytes_text(figures["peak_bytes"])
        table.add_row(name.replace("_", " "), total, peak)
    return table


def _timelines(report: Report) -> Iterator[RenderableType]:
    always = sum(block["bytes"] for block in report["pinned"])
    for phase, course in report["timeline"].items():
        yield Text(f"\nlive bytes over the {len(course['bytes'])} steps of {phase}", "bold")
        yield Timeline([in_words(name) for name in course["operators"]], course["bytes"], always)


def _live(report: Report) -> Table:
    """Return the live tensors at the peak with reasons: tensors of the step first, then pinned
    ones.
    """
    peak = report["peak"]
    pinned = {(block["tensor"], block["offset"]) for block in report["pinned"]}
    always = [live for live in peak["live"] if (live["tensor"], live["offset"]) in pinned]
    reusable = [live for live in peak["live"] if (live["tensor"], live["offset"]) not in pinned]
    table = titled_table(
        f"live at the peak: {peak['phase']}, {peak['title']} (step {peak['step']}), "
        f"{peak['bytes']:,} bytes",
        names=("tensor",),
        least_important=("offset", "steps"),
    )
    table.add_column("tensor", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("offset", justify="right", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("why")
    for live in reusable[:_MAX_LIVE]:
        table.add_row(
            Text(tensor_label(live)),
            f"{live['bytes']:,}",
            f"{live['offset']:,}",
            f"{live['first']}-{live['last']}",
            Text(live["reason"]),
        )
    if rest := reusable[_MAX_LIVE:]:
        nbytes = sum(live["bytes"] for live in rest)
        table.add_row(f"{len(rest)} others", f"{nbytes:,}", style="dim")
    table.add_section()
    for row in _pinned_rows(always):
        table.add_row(*row)
    return table


def tensor_label(live: Mapping[str, Any]) -> str:
    """Return the name of a tensor and, if it shares another's memory, of that tensor."""
    tensor, root = in_words(live["tensor"]), in_words(live["root"])
    return tensor if tensor == root else f"{tensor}, in the memory of {root}"


def _pinned_rows(blocks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str | Text, ...]]:
    """Yield one row per reason for pinned blocks, the largest first."""
    reasons: dict[str, list[Mapping[str, Any]]] = {}
    for block in blocks:
        reasons.setdefault(block["reason"], []).append(block)
    sizes = {reason: sum(block["bytes"] for block in found) for reason, found in reasons.items()}
    for reason, found in sorted(reasons.items(), key=lambda item: -sizes[item[0]]):
        largest = in_words(found[0]["tensor"])
        named = largest if len(found) == 1 else f"{largest} and {len(found) - 1} others"
        begin = min(block["offset"] for block in found)
        yield Text(named), f"{sizes[reason]:,}", f"{begin:,}", "always", Text(reason)


def _refused(hints: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield a table of refused hints, the largest first, without duplicates of several phases.

    Hints of outputs that overwrite another input instead are left out: nothing is lost there.
    """
    keys = ("kind", "step", "source", "target", "reason")
    single = [hint for hint in hints if hint["kind"] != CONCAT_IN_PLACE]
    granted = {(hint["step"], hint["target"]) for hint in single if not hint["reason"]}
    refused = {
        tuple(hint[key] for key in keys): hint["bytes"]
        for hint in hints
        if hint["reason"]
        and (hint["kind"] == CONCAT_IN_PLACE or (hint["step"], hint["target"]) not in granted)
    }
    if not refused:
        return
    table = titled_table(
        f"memory that is not shared; {len(granted)} outputs use an input's memory",
        names=("step", "input", "output"),
        least_important=("how", "input", "output"),
    )
    for column in ("how", "step", "input", "output"):
        table.add_column(column, no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("because")
    rows = sorted(refused.items(), key=lambda item: -item[1])
    for (kind, step, source, target, reason), nbytes in rows[:_MAX_REFUSED]:
        names = (Text(in_words(name)) for name in (step, source, target))
        table.add_row(kind, *names, f"{nbytes:,}", Text(reason))
    if rest := rows[_MAX_REFUSED:]:
        nbytes = sum(nbytes for _, nbytes in rest)
        table.add_row(f"{len(rest)} others", "", "", "", f"{nbytes:,}", style="dim")
    yield table


def _resident_memory(outside: Mapping[str, Any]) -> Iterator[RenderableType]:
    if not outside:
        yield Text(
            "Memory outside the arena cannot be measured: there is no /proc/self/smaps, or no card."
        )
        return
    table = titled_table("outside the arena, measured")
    table.show_footer = True
    table.add_column("what", "all")
    table.add_column("size", bytes_text(outside["total_bytes"]), justify="right")
    libraries = list(outside["libraries"].items())
    for name, nbytes in libraries[:_MAX_LIBRARIES]:
        table.add_row(Text(name), bytes_text(nbytes))
    others = sum(nbytes for _, nbytes in libraries[_MAX_LIBRARIES:])
    table.add_row("interpreter and other libraries", bytes_text(others))
    table.add_row("compiled kernels", bytes_text(outside["compiled_bytes"]))
    table.add_row("heap of interpreter and libraries", bytes_text(outside["heap_bytes"]))
    table.add_row("main thread's stack", bytes_text(outside["stack_bytes"]))
    table.add_row("threads", bytes_text(outside["threads_bytes"]))
    yield table
    if outside["device"] is not None:
        occupied, programs = (
            bytes_text(outside["device"][f"{name}_bytes"]) for name in ("occupied", "programs")
        )
        yield Text(
            f"On the card {occupied} are occupied by its driver for this process and by other "
            f"programs, and {programs} by kernels, tables and constants of the plan."
        )
    compiled = (
        " The compiler ran just now; processes that find its results in the cache do not load it."
    )
    yield Text(
        "Resident memory of this process, which has bound the plan but has no arena "
        "(/proc/self/smaps). A run also holds its records." + compiled * outside["compiler_ran"]
    )
    if outside["temporary_bytes"] is not None:
        size = bytes_text(outside["temporary_bytes"])
        yield Text(
            f"Temporaries of the operators take up to {size} besides, measured in one run of each "
            "phase."
        )
