"""Profiles for people: the operators by time, and what whole steps take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.candidates import candidates_tables
from mxrun.report.figures import bytes_text, count_text, milliseconds_text, phases_text
from mxrun.report.roofline import roofline_table, roofline_text
from mxrun.report.tables import Report, titled_table

# Longer tables are for machines; the rest of the operators stand in one row.
_MAX_ROWS = 40


def bench_tables(report: Report) -> list[Table | Text]:
    """`bench`: whole steps, operators and floors, where the rest of a step goes, and peers."""
    return [
        _steps_table(report),
        roofline_table(report),
        Text(_rest(report["profile"])),
        Text(_tape(report["tape"])),
        roofline_text(report["roofline"]),
        *candidates_tables(report["operators"]),
        *([_peers_table(report["peers"])] if report["peers"] else []),
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
    shares = [(row["phase"], row["share"]) for row in operators]
    # Words fold on a narrow console, numbers do not.
    for name, footer in {"operator": phases_text(shares), "op": "", "implementation": ""}.items():
        table.add_column(name, footer, overflow="fold")
    for name in ("calls", "ms", "share", "GFLOP/s", "GB/s"):
        table.add_column(name, justify="right", no_wrap=True)
    slowest = sorted(operators, key=lambda row: -row["ms"])
    for row in slowest[:_MAX_ROWS]:
        table.add_row(
            *(Text(row[key]) for key in ("name", "op", "implementation")),
            count_text(row["calls"]),
            milliseconds_text(row["ms"]),
            f"{row['share']:.1%}",
            _rate(row["gflops"]),
            _rate(row["gbytes_per_s"]),
        )
    if rest := slowest[_MAX_ROWS:]:
        time, share = sum(row["ms"] for row in rest), sum(row["share"] for row in rest)
        others = f"{len(rest)} others"
        table.add_row(
            others, "", "", "", milliseconds_text(time), f"{share:.1%}", "", "", style="dim"
        )
    table.add_section()
    table.add_row("total", "", "", "", milliseconds_text(total_ms), "", "", "")
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
        table.add_row(label, f"{milliseconds_text(times[key])} ms")
    table.add_row("samples/s", count_text(figures["samples_per_s"]))
    table.add_row("first step after", f"{figures['first_step_s']:.2f} s")
    table.add_row("largest resident size", bytes_text(figures["rss_peak_bytes"]))
    return table


def _peers_table(peers: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row per peer: its fastest way, both sides' median step, the ratio with quartiles, and
    that of both sides' fastest steps.
    """
    table = titled_table("peers, in turns with mxrun: a ratio above 1 means that mxrun is faster")
    for name in ("peer", "version", "fastest way"):
        table.add_column(name, overflow="fold")
    for name in ("step, ms", "mxrun, ms", "ratio", "half within", "of fastest"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, peer in peers.items():
        version = Text(peer.get("version", ""))
        if peer["status"] != "measured":
            told = Text(f"{peer['status']}: {peer['reason']}")
            table.add_row(Text(name), version, told, "", "", "", "", "")
            continue
        ratio = peer["ratio"]
        table.add_row(
            Text(name),
            version,
            Text(peer["way"]),
            milliseconds_text(peer["step_ms"]["median"]),
            milliseconds_text(peer["mxrun_step_ms"]["median"]),
            f"{ratio['median']:.2f}",
            f"{ratio['low']:.2f} to {ratio['high']:.2f}",
            f"{ratio['fastest']:.2f}",
        )
    return table


def _rest(profile: Mapping[str, Any]) -> str:
    """What of a profiled step is no operator's, and what the clocks cost."""
    between_ms = max(0.0, profile["tape_ms"] - profile["operators_ms"])
    fastest = milliseconds_text(profile["step_ms"]["min"])
    parts = [
        f"batch {milliseconds_text(profile['batch_ms'])} ms",
        f"operators {milliseconds_text(profile['operators_ms'])} ms",
        f"between them {milliseconds_text(between_ms)} ms",
    ]
    if profile["measure_ms"] >= 0.001:
        parts.append(f"loss and metrics {milliseconds_text(profile['measure_ms'])} ms")
    return (
        f"A profiled step: {', '.join(parts)}.\nThe fastest takes "
        f"{fastest} ms, {profile['overhead']:+.1%} against the fastest of "
        "the steps without clocks between them."
    )


def _tape(tape: Mapping[str, Any]) -> str:
    """What the calls of a step cost that do nothing."""
    return (
        f"Empty, a step's {tape['calls']:,} calls, of which {tape['team_switches']:,} set the "
        f"team, take {tape['us_per_call']:.3f} us each: {tape['share']:.2%} of the step."
    )


def _rate(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
