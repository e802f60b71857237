"""Progress bar of a training run on a terminal."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from mxrun.report.console import stderr


class _MetricsColumn(ProgressColumn):
    """Column of metrics, the only one that is cut if there is no room."""

    def render(self, task: Task) -> Text:
        """Return the metrics on one line."""
        return Text(task.fields["metrics"], no_wrap=True, overflow="ellipsis")


def training_bar() -> Progress:
    """Return a bar with epoch, step, samples per second, metrics and the time left, on one line."""
    return Progress(
        TextColumn("epoch {task.fields[epoch]}", style="bold"),
        BarColumn(bar_width=16, table_column=Column(no_wrap=True)),
        TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[rate]} samples/s", style="cyan"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        _MetricsColumn(),
        console=stderr(),
        transient=True,
    )
