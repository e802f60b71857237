"""Profiles for people: the operators by time, and what whole steps take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text, count_text
from mxrun.report.tables import Report, titled_table

# Longer tables are for machines; the rest of the operators stand in one row.
_MOST_ROWS = 40


def bench_tables(report: Report) -> list[Table | Text]:
    """`bench`: whole steps, the operators, and where the rest of a profiled step goes."""
    return [
        _steps_table(report),
        profile_table(report["operators"], f"operators of {report['profile']['steps']} steps"),
        Text(_rest(report["profile"])),
    ]


def run_tables(profiles: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Table]:
    """`train --profile`: the operators of each phase, as `RunProfile.to_json` has them."""
    return [
        profile_table(operators, f"operators of {phase}") for phase, operators in profiles.items()
    ]


def profile_table(operators: Sequence[Mapping[str, Any]], title: str) -> Table:
    """One row per operator, the slowest first; `operators` are `OperatorTime.to_json`'s.

    `ms` is one call's, `share` of the time of all of them. Names say what is no forward step:
    `conv1:backward`, `conv1_weight:update`.
    """
    table = titled_table(title)
    table.show_footer = True
    total_ms = sum(row["ms"] for row in operators)
    # Words fold on a narrow console, numbers do not.
    for name, footer in {"operator": _by_phase(operators), "op": "", "implementation": ""}.items():
        table.add_column(name, footer, overflow="fold")
    for name in ("calls", "ms", "share", "GFLOP/s", "GB/s"):
        table.add_column(name, justify="right", no_wrap=True)
    slowest = sorted(operators, key=lambda row: -row["ms"])
    for row in slowest[:_MOST_ROWS]:
        table.add_row(
            *(Text(row[key]) for key in ("name", "op", "implementation")),
            count_text(row["calls"]),
            _ms(row["ms"]),
            f"{row['share']:.1%}",
            _rate(row["gflops"]),
            _rate(row["gbytes_per_s"]),
        )
    if rest := slowest[_MOST_ROWS:]:
        time, share = sum(row["ms"] for row in rest), sum(row["share"] for row in rest)
        others = f"{len(rest)} others"
        table.add_row(others, "", "", "", _ms(time), f"{share:.1%}", "", "", style="dim")
    table.add_section()
    table.add_row("total", "", "", "", _ms(total_ms), "", "", "")
    return table


def _steps_table(report: Report) -> Table:
    figures = report["mxrun"]
    times = figures["step_ms"]
    table = titled_table(f"{report['name']}, {report['phase']}: {report['steps']:,} steps")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("batch", f"{report['batch_size']:,}")
    table.add_row("threads", str(report["threads"]))
    for label, key in (
        ("step, median", "median"),
        ("step, 90 % below", "p90"),
        ("step, 99 % below", "p99"),
        ("step, fastest", "min"),
    ):
        table.add_row(label, f"{_ms(times[key])} ms")
    table.add_row("samples/s", count_text(figures["samples_per_s"]))
    table.add_row("first step after", f"{figures['first_step_s']:.2f} s")
    table.add_row("largest resident size", bytes_text(figures["rss_peak_bytes"]))
    return table


def _rest(profile: Mapping[str, Any]) -> str:
    """What of a profiled step is no operator's, and what the clocks cost."""
    parts = [
        f"batch {_ms(profile['batch_ms'])} ms",
        f"operators {_ms(profile['operators_ms'])} ms",
        f"between them {_ms(max(0.0, profile['tape_ms'] - profile['operators_ms']))} ms",
    ]
    if profile["measure_ms"] >= 0.001:
        parts.append(f"loss and metrics {_ms(profile['measure_ms'])} ms")
    return (
        f"A profiled step: {', '.join(parts)}.\nThe fastest takes "
        f"{_ms(profile['step_ms']['min'])} ms, {profile['overhead']:+.1%} against the fastest of "
        "the steps without clocks between them."
    )


def _by_phase(operators: Sequence[Mapping[str, Any]]) -> str:
    """The share of each phase: `forward 40%, backward 55%, update 5%`."""
    shares: dict[str, float] = {}
    for row in operators:
        shares[row["phase"]] = shares.get(row["phase"], 0.0) + row["share"]
    return "\n".join(f"{phase} {share:.0%}" for phase, share in shares.items())


def _ms(milliseconds: float) -> str:
    """Three or more digits: 0.00123, 0.123, 12.3, 1234."""
    if milliseconds < 0.1:
        return f"{milliseconds:.5f}"
    return f"{milliseconds:.3f}" if milliseconds < 100 else f"{milliseconds:.1f}"


def _rate(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
