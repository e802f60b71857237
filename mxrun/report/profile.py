"""Tables of profiles: time per operator, and time per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.candidates import candidates_tables
from mxrun.report.figures import bytes_text, count_text, milliseconds_text, phases_text
from mxrun.report.roofline import roofline_table, roofline_text
from mxrun.report.tables import Report, contention_lines, titled_table

# Limit of the table; the rest is summed up in one row. The JSON report is complete.
_MAX_ROWS = 40
_MIB = 1 << 20


def bench_tables(report: Report) -> list[Table | Text]:
    """Return the tables of `bench`: steps, operators, overheads, and peers.

    Floors and overheads are left out if they are not known for the device. Of batches in parts
    there are only the steps, and the functions of which they consist.
    """
    if "functions" in report:
        advice = contention_lines(report["mxrun"], report["threads"], "--threads {}")
        messages = _communication_lines(report["communication"])
        return [_steps_table(report), *advice, *messages, _functions_table(report)]
    roofline, steps = report["roofline"], report["profile"]["steps"]
    without_floors = f"operators, the mean of {steps} steps"
    return [
        _steps_table(report),
        *contention_lines(report["mxrun"], report["threads"], "--threads {}"),
        roofline_table(report) if roofline else profile_table(report["operators"], without_floors),
        Text(_rest(report["profile"])),
        *([Text(_tape(report["tape"]))] if report["tape"]["us_per_call"] else []),
        *([roofline_text(roofline)] if roofline else []),
        *candidates_tables(report["operators"]),
        *([_peers_table(report["peers"])] if report["peers"] else []),
    ]


def run_tables(profiles: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Table]:
    """Return the tables of `train --profile`: operators by phase, from `RunProfile.to_json`."""
    return [
        profile_table(operators, f"operators of {phase}") for phase, operators in profiles.items()
    ]


def profile_table(operators: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Return one row per operator, slowest first; `operators` are values of `OperatorTime.to_json`.

    `ms` is the time of one call, `share` its part of the time of all calls. Suffixes mark steps
    other than forward: `conv1:backward`, `conv1_weight:update`.
    """
    table = titled_table(
        title,
        names=("operator", "op", "implementation"),
        least_important=("implementation", "GB/s", "calls", "GFLOP/s"),
    )
    table.show_footer = True
    total_ms = sum(row["ms"] for row in operators)
    shares = [(row["phase"], row["share"]) for row in operators]
    for name, footer in {"operator": phases_text(shares), "op": "", "implementation": ""}.items():
        table.add_column(name, footer, no_wrap=True)
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
    for label in ("ranks", "contexts", "micro-batches"):
        if (parts := report[label.replace("-", "_")]) > 1:
            table.add_row(label, str(parts))
    threads, at_once = report["threads"], report["threads_at_once"]
    table.add_row("threads", f"{threads}, {at_once} at once" if at_once < threads else str(threads))
    for label, key in (
        ("step, median", "median"),
        ("step, p90", "p90"),
        ("step, p99", "p99"),
        ("step, fastest", "min"),
    ):
        table.add_row(label, f"{milliseconds_text(times[key])} ms")
    table.add_row("samples/s", count_text(figures["samples_per_s"]))
    table.add_row("time to first step", f"{figures['first_step_s']:.2f} s")
    table.add_row("peak memory", bytes_text(figures["rss_peak_bytes"]))
    return table


def _communication_lines(communication: Mapping[str, float] | None) -> list[Text]:
    """Return the line about messages between ranks, if there are several."""
    if communication is None:
        return []
    time, share = milliseconds_text(communication["ms"]), communication["hidden_share"]
    return [Text(f"messages between ranks: {time} ms a step, {share:.0%} of it while computing")]


def _functions_table(report: Report) -> Table:
    """Return one row for each function of a step on parts, in the order of their starts."""
    table = titled_table(
        "what a step consists of",
        names=("function",),
        least_important=("calls",),
    )
    table.add_column("function", no_wrap=True)
    for name in ("calls", "ms", "from, ms", "until, ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in report["functions"]:
        table.add_row(
            Text(row["name"]),
            count_text(row["calls"]),
            *(milliseconds_text(row[key]) for key in ("ms", "start_ms", "end_ms")),
        )
    return table


def _peers_table(peers: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return one row per peer.

    Columns: its fastest mode, the median step of both sides, the median ratio with quartiles, the
    ratio of the fastest steps, and peak memory of both processes with its ratio.
    """
    times = ("step, ms", "mxrun, ms", "ratio", "quartiles", "of fastest")
    memory = ("peak, MiB", "mxrun, MiB", "memory ratio")
    table = titled_table(
        "peers, alternating with mxrun: a ratio above 1 means that mxrun is faster, or smaller",
        least_important=("version", "of fastest", "quartiles", *memory),
    )
    for name in ("peer", "version", "fastest mode"):
        table.add_column(name)
    for name in (*times, *memory):
        table.add_column(name, justify="right", no_wrap=True)
    for name, peer in peers.items():
        version = Text(peer.get("version", ""))
        if peer["status"] != "measured":
            reason = Text(f"{peer['status']}: {peer['reason']}")
            table.add_row(Text(name), version, reason)
            continue
        ratio, sizes = peer["ratio"], peer["memory"]
        table.add_row(
            Text(name),
            version,
            Text(peer["mode"]),
            milliseconds_text(peer["step_ms"]["median"]),
            milliseconds_text(peer["mxrun_step_ms"]["median"]),
            f"{ratio['median']:.2f}",
            f"{ratio['low']:.2f} to {ratio['high']:.2f}",
            f"{ratio['fastest']:.2f}",
            f"{sizes['peak_rss_bytes'] / _MIB:,.0f}",
            f"{sizes['mxrun_peak_rss_bytes'] / _MIB:,.0f}",
            f"{sizes['ratio']:.2f}",
        )
    return table


def _rest(profile: Mapping[str, Any]) -> str:
    """Return the time of a profiled step outside operators, and the cost of the clocks."""
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
        "the unprofiled steps between them."
    )


def _tape(tape: Mapping[str, Any]) -> str:
    """Return the overhead of a step's calls: their time if they do nothing."""
    return (
        f"Overhead: without their kernels, a step's {tape['calls']:,} calls take "
        f"{tape['us_per_call']:.3f} us each: {tape['share']:.2%} of the step."
    )


def _rate(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
