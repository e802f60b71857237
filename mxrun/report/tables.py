"""Results for people, made from what `--json` gives to machines, so that both say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text, count_text, metric_text

Report = Mapping[str, Any]


def layer_table(report: Report) -> Table:
    """`check`: one row per layer with output shapes, parameters and FLOPs, and their sums."""
    table = _table(f"{report['name']}, batch {report['batch_size']}")
    table.show_footer = True
    table.add_column("layer", "total")
    table.add_column("operator")
    table.add_column("output shape")
    table.add_column("parameters", f"{report['parameters']:,}", justify="right")
    table.add_column("FLOPs", count_text(report["flops"]), justify="right")
    for row in report["rows"]:
        table.add_row(
            Text(row["name"]),
            Text(row["operator"]),
            Text("  ".join(_shape(shape) for shape in row["output_shapes"])),
            f"{row['parameters']:,}",
            count_text(row["flops"]),
        )
    return table


def memory_tables(report: Report) -> list[Table | Text]:
    """`inspect-memory`: the arena against its bounds, its classes, and refused in-place hints."""
    arena = _table("arena")
    arena.add_column("counted")
    arena.add_column("size", justify="right")
    arena.add_column("bytes", justify="right")
    for label, key in (
        ("planned", "planned_bytes"),
        ("lower bound of this order", "lower_bound_bytes"),
        ("in place, without reuse", "in_place_only_bytes"),
        ("every tensor its own", "naive_bytes"),
    ):
        arena.add_row(label, bytes_text(report[key]), f"{report[key]:,}")
    proved = "as small as this order allows" if report["proved_optimal"] else _gap(report)
    verdict = Text(f"{proved}; planned in {report['planning_ms']:.1f} ms")
    return [arena, verdict, _classes(report["classes"]), *_refused(report.get("hints", ()))]


def _gap(report: Report) -> str:
    gap = report["planned_bytes"] - report["lower_bound_bytes"]
    return f"{bytes_text(gap)} above the lower bound"


def _classes(classes: Mapping[str, Mapping[str, int]]) -> Table:
    table = _table("classes")
    table.add_column("class")
    table.add_column("all tensors", justify="right")
    table.add_column("at the peak", justify="right")
    for name, figures in classes.items():
        total, peak = bytes_text(figures["total_bytes"]), bytes_text(figures["peak_bytes"])
        table.add_row(name.replace("_", " "), total, peak)
    return table


def _refused(hints: Sequence[Mapping[str, str]]) -> list[Table | Text]:
    refused = [hint for hint in hints if hint["reason"]]
    if not refused:
        return []
    table = _table("in-place hints not taken")
    for column in ("step", "from", "to", "reason"):
        table.add_column(column)
    for hint in refused:
        table.add_row(*(Text(hint[key]) for key in ("step", "source", "target", "reason")))
    return [table]


def train_table(summary: Report) -> Table:
    """`train`: evaluation, times, memory and where the run lies."""
    table = _table(f"{summary['steps']:,} steps")
    table.add_column("what")
    table.add_column("value", justify="right")
    for name, value in summary["eval"].items():
        table.add_row(f"eval {name}", metric_text(value))
    times, memory = summary["step_ms"], summary["memory"]
    table.add_row("step, median", f"{times['median']:.3f} ms")
    table.add_row("step, 99 % below", f"{times['p99']:.3f} ms")
    table.add_row("first step after", f"{summary['first_step_s']:.2f} s")
    table.add_row("arena", bytes_text(memory["planned_bytes"]))
    table.add_row("largest resident size", bytes_text(memory["rss_peak_bytes"]))
    table.add_row("run", Text(summary["run_dir"]))
    return table


def _table(title: str) -> Table:
    return Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD)


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
