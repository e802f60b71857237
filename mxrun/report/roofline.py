"""The roofline for people: operators against their floors, what there is to win, the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text, milliseconds_text, phases_text
from mxrun.report.tables import Report, titled_table

# Longer tables are for machines; the rest of the operators stand in one row.
_MAX_ROWS = 40
# A floor that is beaten by more was measured while the machine had other work.
_BEATEN = 1.1
# Operators that take longer in profiled steps than whole steps without clocks by more than this
# factor were slowed by something else than the clocks.
_APART = 1.1


def roofline_table(report: Report) -> Table:
    """`bench`: one row per operator, the slowest first, with the floor of its time.

    `of bound` is the part of the time that the bound explains, `bound` what that is: operations,
    bytes, or the calls themselves.
    """
    operators = report["roofline"]["operators"]
    implementations = {row["name"]: row["implementation"] for row in report["operators"]}
    total_ms = sum(row["ms"] for row in operators)
    table = titled_table(f"operators, the median of {report['profile']['steps']} steps")
    table.show_footer = True
    shares = [(row["phase"], row["ms"] / total_ms) for row in operators]
    # Words fold on a narrow console, numbers do not.
    for name, footer in {"operator": phases_text(shares), "op": "", "implementation": ""}.items():
        table.add_column(name, footer, overflow="fold")
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
    """The step against floor and prediction, the most to win, and the machine's figures."""
    step, machine = roofline["step"], roofline["machine"]
    apart = step["operators_ms"] / step["ms"]
    whole = "the operators" if apart > _APART else "the step"
    lines = [
        f"The step's floor is {milliseconds_text(step['floor_ms'])} ms, {step['of_floor']:.0%} of "
        f"what it takes; predicted {milliseconds_text(step['predicted_ms'])} ms, "
        f"{step['error']:+.0%}.",
        f"Most to win above the floors: {_most_to_win(roofline['most_to_win'], whole)}.",
        f"The machine at its best, {_threads(machine['threads'])}: {_products(machine)}; "
        f"{_bandwidths(machine)}.",
    ]
    if apart > _APART:
        lines.append(
            f"The operators took {milliseconds_text(step['operators_ms'])} ms in the profiled "
            f"steps, {apart:.1f} times the median step without clocks: the machine probably had "
            "other work then. What there is to win is a part of the operators' time."
        )
    if roofline["disturbed"]:
        lines.append(
            "Other work kept the machine busy while it was measured: floors may be too high, and "
            "its figures are not kept."
        )
    elif any(row["of_bound"] > _BEATEN for row in roofline["operators"]):
        lines.append(
            "Some operators are faster than their floors: the machine had other work when it was "
            "measured. Measure it again with --remeasure."
        )
    return Text("\n".join(lines))


def _most_to_win(groups: Sequence[Mapping[str, Any]], whole: str) -> str:
    return ", ".join(
        f"{_group(row)} {milliseconds_text(row['to_win_ms'])} ms ({row['to_win']:.0%} of {whole})"
        for row in groups
    )


def _group(row: Mapping[str, Any]) -> str:
    return "reorders" if row["phase"] == "reorder" else f"{row['op']} {row['phase']}"


def _threads(count: int) -> str:
    return f"{count} threads" if count > 1 else "1 thread"


def _products(machine: Mapping[str, Any]) -> str:
    rates = machine["flops_per_s"]
    texts = [f"{rate / 1e9:,.0f} GFLOP/s in {dtype}" for dtype, rate in rates.items()]
    return ", ".join(texts if len(texts) > 1 else [*texts, "no instructions for bfloat16"])


def _bandwidths(machine: Mapping[str, Any]) -> str:
    """Copying in half of each cache, where next to nothing else has room, and beyond them all."""
    rows = machine["bandwidths"]
    chosen = []
    for nbytes in machine["cache_bytes"]:
        fitting = [row for row in rows if row["nbytes"] <= nbytes / 2]
        if fitting and fitting[-1] not in chosen:
            chosen.append(fitting[-1])
    if rows[-1] not in chosen:
        chosen.append(rows[-1])
    rates = [f"{row['copy'] / 1e9:.0f} GB/s in {bytes_text(row['nbytes'])}" for row in chosen]
    return f"copying {', '.join(rates)}"
