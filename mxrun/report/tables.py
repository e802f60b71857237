"""Results for people, made from what `--json` gives to machines, so that both say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text, count_text, metric_text

Report = Mapping[str, Any]
# Less waiting for a core than this part of the time is no news, nor are steps of which nine in ten
# take no longer than so many times the fastest.
_CONTENDED, _VARIED = 0.05, 1.5


def layer_table(report: Report) -> Table:
    """`check`: one row per layer with output shapes, parameters and FLOPs, and their sums."""
    table = titled_table(f"{report['name']}, batch {report['batch_size']}")
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


def train_table(summary: Report) -> Table:
    """`train`: evaluation, times, memory and where the run lies."""
    table = titled_table(f"{summary['steps']:,} steps")
    table.add_column("what")
    table.add_column("value", justify="right")
    if summary["synthetic_data"]:
        table.add_row("records", "synthetic data")
    for name, value in summary["eval"].items():
        if not isinstance(value, Sequence):
            table.add_row(f"eval {name}", "nan" if value is None else metric_text(value))
    times, memory = summary["step_ms"], summary["memory"]
    table.add_row("step, median", f"{times['median']:.3f} ms")
    table.add_row("step, 99 % below", f"{times['p99']:.3f} ms")
    table.add_row("threads", str(summary["threads"]))
    table.add_row("first step after", f"{summary['first_step_s']:.2f} s")
    table.add_row("arena", bytes_text(memory["planned_bytes"]))
    if summary["recompute"] is not None:
        made = summary["recompute"]
        extra = f"{made['measured_extra']:.1%} longer, predicted {made['predicted_extra']:.1%}"
        table.add_row(f"{made['steps']} steps run again", extra)
    table.add_row("largest resident size", bytes_text(memory["rss_peak_bytes"]))
    table.add_row("run", Text(summary["run_dir"]))
    return table


def contention_lines(summary: Report) -> list[Text]:
    """`train`: a line where steps vary widely because other processes use the cores."""
    share, times, threads = summary["core_wait_share"], summary["step_ms"], summary["threads"]
    if share is None or share < _CONTENDED or not times["p90"] > _VARIED * times["min"]:
        return []
    line = (
        f"Other processes use the cores: training waited for one {share:.0%} of its time, and "
        f"steps took {times['min']:.3f} to {times['p99']:.3f} ms."
    )
    if threads > 1:
        fewer = threads // 2
        line += f" A smaller team waits less: try threads={fewer} (it is a run of its own)."
    return [Text(line)]


def titled_table(title: str) -> Table:
    """An empty table as all of them look."""
    return Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD)


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
