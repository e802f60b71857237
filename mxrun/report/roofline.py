"""Roofline of a step: operators against their floors, possible savings, speeds of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text, milliseconds_text, phases_text
from mxrun.report.tables import Report, titled_table

# Limit of the table; the rest is summed up in one row. The JSON report is complete.
_MAX_ROWS = 40
# A floor that an operator beats by more than this factor was measured under other load.
_BEATEN = 1.1
# If the operators of profiled steps take longer than steps without clocks by more than this factor,
# something other than the clocks slowed them down.
_PROFILE_SLOWDOWN = 1.1


def roofline_table(report: Report) -> Table:
    """Return one row per operator of `bench`, slowest first, with the floor of its time.

    The column `of bound` is the share of the time that the bound explains, `bound` is compute
    (operations), memory (bytes) or overhead (the calls themselves).
    """
    operators = report["roofline"]["operators"]
    implementations = {row["name"]: row["implementation"] for row in report["operators"]}
    total_ms = sum(row["ms"] for row in operators)
    table = titled_table(
        f"operators, the median of {report['profile']['steps']} steps",
        names=("operator", "op", "implementation"),
        least_important=("implementation", "of bound", "bound"),
    )
    table.show_footer = True
    shares = [(row["phase"], row["ms"] / total_ms) for row in operators]
    for name, footer in {"operator": phases_text(shares), "op": "", "implementation": ""}.items():
        table.add_column(name, footer, no_wrap=True)
    for name in ("ms", "share", "floor, ms", "of bound"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    slowest = sorted(operators, key=lambda row: -row["ms"])
    for row in slowest[:_MAX_ROWS]:
        table.add_row(
            *(Text(text) for text in (row["name"], row["op"], implementations[row["name"]])),
            milliseconds_text(row["ms"]),
            f"{row['ms'] / total_ms:.1%}",
            milliseconds_text(row["floor_ms"]),
            f"{row['of_bound']:.0%}",
            row["bound"],
        )
    if rest := slowest[_MAX_ROWS:]:
        time, floor = sum(row["ms"] for row in rest), sum(row["floor_ms"] for row in rest)
        figures = (milliseconds_text(time), f"{time / total_ms:.1%}", milliseconds_text(floor))
        table.add_row(f"{len(rest)} others", "", "", *figures, "", "", style="dim")
    table.add_section()
    floor = sum(row["floor_ms"] for row in operators)
    figures = (milliseconds_text(total_ms), "", milliseconds_text(floor))
    table.add_row("total", "", "", *figures, f"{floor / total_ms:.0%}", "")
    return table


def roofline_text(roofline: Report) -> Text:
    """Return the step against floor and prediction, the largest savings, and peak speeds."""
    step, machine = roofline["step"], roofline["machine"]
    ratio = step["operators_ms"] / step["ms"]
    reference = "the operators" if ratio > _PROFILE_SLOWDOWN else "the step"
    lines = [
        f"The step's floor is {milliseconds_text(step['floor_ms'])} ms, {step['of_floor']:.0%} of "
        f"what it takes; predicted {milliseconds_text(step['predicted_ms'])} ms, "
        f"{step['error']:+.0%}.",
        f"Most time above the floors: {_savings_text(roofline['largest_excesses'], reference)}.",
        f"The machine's peak speeds, {_threads(machine['threads'])}: {_products(machine)}; "
        f"{_bandwidths(machine)}.",
    ]
    if ratio > _PROFILE_SLOWDOWN:
        lines.append(
            f"The operators took {milliseconds_text(step['operators_ms'])} ms in the profiled "
            f"steps, {ratio:.1f} times the median unprofiled step: the machine was probably "
            "busy with other work. Times above the floors are shares of the operators' time."
        )
    if roofline["disturbed"]:
        lines.append(
            "Other work kept the machine busy while it was measured: floors may be too high, and "
            "its speeds are not cached."
        )
    elif any(row["of_bound"] > _BEATEN for row in roofline["operators"]):
        lines.append(
            "Some operators are faster than their floors: the machine was busy with other work "
            "when it was measured. Measure it again with --remeasure."
        )
    return Text("\n".join(lines))


def _savings_text(groups: Sequence[Mapping[str, Any]], reference: str) -> str:
    return ", ".join(
        f"{_group(row)} {milliseconds_text(row['savings_ms'])} ms "
        f"({row['savings']:.0%} of {reference})"
        for row in groups
    )


def _group(row: Mapping[str, Any]) -> str:
    return "reorders" if row["phase"] == "reorder" else f"{row['op']} {row['phase']}"


def _threads(count: int) -> str:
    if count == 0:
        return "by its properties"
    return f"{count} threads" if count > 1 else "1 thread"


def _products(machine: Mapping[str, Any]) -> str:
    rates = machine["flops_per_s"]
    texts = [f"{rate / 1e9:,.0f} GFLOP/s in {dtype}" for dtype, rate in rates.items()]
    return ", ".join(texts if len(texts) > 1 else [*texts, "no instructions for bfloat16"])


def _bandwidths(machine: Mapping[str, Any]) -> str:
    """Return the copy bandwidth for half of each cache, which leaves room for other data, and for
    DRAM.
    """
    rows = machine["bandwidths"]
    selected = []
    for nbytes in machine["cache_bytes"]:
        fitting = [row for row in rows if row["nbytes"] <= nbytes / 2]
        if fitting and fitting[-1] not in selected:
            selected.append(fitting[-1])
    if rows[-1] not in selected:
        selected.append(rows[-1])
    rates = [f"{row['copy'] / 1e9:.0f} GB/s in {bytes_text(row['nbytes'])}" for row in selected]
    return f"copying {', '.join(rates)}"
