"""Tables of results, made from their JSON reports, so that both agree."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.figures import bytes_text, count_text, metric_text
from mxrun.report.fitted_table import FittedTable

Report = Mapping[str, Any]
# Thresholds of a note on contention: share of the time spent waiting for a core, and ratio of the
# 90th percentile of step times to the minimum.
_CONTENDED, _VARIED = 0.05, 1.5


def layer_table(report: Report) -> Table:
    """Return the table of `check`: shapes, parameters and FLOPs by layer, and their sums."""
    table = titled_table(
        f"{report['name']}, batch {report['batch_size']}",
        names=("layer",),
        least_important=("FLOPs", "operator"),
    )
    table.show_footer = True
    table.add_column("layer", "total")
    table.add_column("operator")
    table.add_column("output shape")
    table.add_column("parameters", f"{report['parameters']:,}", justify="right", no_wrap=True)
    table.add_column("FLOPs", count_text(report["flops"]), justify="right", no_wrap=True)
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
    """Return the table of `train`: evaluation, times, memory and the folder of the run."""
    steps = summary["steps"]
    table = titled_table(f"{steps:,} step{'' if steps == 1 else 's'}")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("ended", Text(summary["ended"]))
    if summary["best"] is not None:
        best = summary["best"]
        table.add_row(f"best {best['metric']}", Text(_best_text(best)))
    records = " on synthetic data" if summary["synthetic_data"] else ""
    for name, value in summary["eval"].items():
        if not isinstance(value, Sequence) and name not in summary["same_as_loss"]:
            text = "nan" if value is None else metric_text(value)
            table.add_row(f"eval {name}", f"{text}{records}")
    if summary["synthetic_data"] and not summary["eval"]:
        table.add_row("records", "synthetic data")
    times, memory = summary["step_ms"], summary["memory"]
    table.add_row("step, median", f"{times['median']:.3f} ms")
    table.add_row("step, p99", f"{times['p99']:.3f} ms")
    if summary["contexts"] > 1:
        table.add_row("contexts", str(summary["contexts"]))
    table.add_row("threads", str(summary["threads"]))
    for section, count in summary["bad_records"].items():
        if count:
            table.add_row(f"{section} records left out", f"{count:,}: bad_records.jsonl")
    table.add_row("time to first step", f"{summary['first_step_s']:.2f} s")
    table.add_row("arena", bytes_text(memory["planned_bytes"]))
    if summary["recompute"] is not None:
        recomputed = summary["recompute"]
        measured, predicted = recomputed["measured_extra"], recomputed["predicted_extra"]
        extra = f"{measured:.1%} longer, predicted {predicted:.1%}"
        table.add_row(f"{recomputed['steps']} steps recomputed", extra)
    for context, counters in summary["storage"].items():
        if requests := counters["requests"]:
            reused = f"{counters['requests_from_pool']:,} of {requests:,} from the pool"
            peak = f"peak {bytes_text(counters['peak_bytes'])}"
            table.add_row(f"arrays on {context}", f"{reused}, {peak}")
    table.add_row("peak memory", bytes_text(memory["rss_peak_bytes"]))
    table.add_row("run", Text(summary["run_dir"]))
    return table


def _best_text(best: Report) -> str:
    """Return the best evaluation: `0.9833 after epoch 17 (checkpoint-391)`, or that it is lost."""
    text = f"{metric_text(best['value'])} after epoch {best['epoch']}"
    checkpoint = best["checkpoint"]
    lost = "not saved: set train.checkpoint.best"
    return f"{text} ({lost if checkpoint is None else Path(checkpoint).name})"


def data_wait_lines(summary: Report) -> list[Text]:
    """Return a line for `train` if it often waited for data, with what helps."""
    if not summary["data_wait_advice"]:
        return []
    share = summary["data_wait_share"]
    return [Text(f"Waited for data {share:.0%} of the time: {summary['data_wait_advice']}.")]


def contention_lines(figures: Report, threads: int, advice: str) -> list[Text]:
    """Return a line if steps vary widely because other processes use the cores.

    figures: `core_wait_share` and `step_ms` of `train` or `bench`. advice: what to try with more
    than one thread; `{}` is the number.
    """
    share, times = figures["core_wait_share"], figures["step_ms"]
    if share is None or share < _CONTENDED or not times["p90"] > _VARIED * times["min"]:
        return []
    line = (
        f"Other processes use the cores: mxrun waited for a core {share:.0%} of the time, and "
        f"steps took {times['min']:.3f} to {times['p99']:.3f} ms."
    )
    if threads > 1:
        line += f" Fewer threads wait less: try {advice.format(threads // 2)}."
    return [Text(line)]


def titled_table(
    title: str,
    *columns: str,
    names: Collection[str] = (),
    least_important: Sequence[str] = (),
) -> FittedTable:
    """Return a table in the common style, without rows.

    names: the columns that are shortened in the middle if the terminal is too narrow.
    least_important: the columns that are left out before that, the first one first.
    """
    return FittedTable(title, *columns, names=names, least_important=least_important)


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
