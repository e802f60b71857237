"""`mxrun train`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mxrun.cli.clock import STARTED_AT
from mxrun.cli.registry import COMMANDS
from mxrun.options.train import TrainOptions

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mxrun.commands.train import TrainingResult


@COMMANDS.register(
    "train",
    order=20,
    foreign={
        "train": "fit finetune",
        "train CONFIG --resume": "resume",
        "train CONFIG --profile": "profile",
    },
)
def train(options: TrainOptions) -> None:
    """Train a network and save the run in runs/NAME.

    The folder gets the resolved config, metrics, checkpoints and a summary. If the data set needs a
    path and the config has none, training uses synthetic data. On SIGINT, SIGTERM, SIGHUP and
    SIGUSR1, training finishes the current step, saves and exits with 75; a second SIGINT exits at
    once. A run that ended before its first checkpoint is replaced without --overwrite.

    \b
    Examples:
      mxrun train digits_lenet
      mxrun train net.yaml train.epochs=3 name=short
      mxrun train net.yaml --json --overwrite > summary.json
      mxrun train net.yaml --resume
      mxrun train net.yaml --runs /data/runs
      mxrun train net.yaml "memory.budget=2 GiB" --batch max
      mxrun train net.yaml --profile --trace steps.json
    """
    from mxrun.report.status import status

    _check_options(options)
    with status(f"preparing {options.config}"):
        from mxrun.base.files import check_outputs
        from mxrun.commands import train as command
        from mxrun.report.progress import report_abrupt_end, training_observer

        check_outputs({Path(options.config): "CONFIG"}, {"--trace": options.trace})
        with training_observer() as observer:
            trained = command.train(options, observer, STARTED_AT, report_abrupt_end)
    if trained is not None:
        _report(trained, options)


def _check_options(options: TrainOptions) -> None:
    """Raise BadParameter for options that contradict each other or lack the option they modify."""
    if options.resume and options.overwrite:
        raise typer.BadParameter(
            "--resume continues the run and --overwrite replaces it: give only one of them"
        )
    if options.allow_changes and not options.resume:
        raise typer.BadParameter(
            "--allow-changes applies to --resume only: add --resume, or leave it out"
        )


def _report(trained: TrainingResult, options: TrainOptions) -> None:
    """Write the summary of the run, and the trace."""
    from mxrun.report.result import write_json, write_tables
    from mxrun.report.trace import write_trace

    summary = trained.summary.to_json()
    if trained.profile is not None:
        if options.trace is not None:
            write_trace(options.trace, trained.profile.events())
        summary |= {"profile": trained.profile.to_json()} if options.profile else {}
    if options.json:
        write_json(summary)
        return
    try:
        tables = _tables(summary)
    except MemoryError:
        # The run is complete. The JSON needs no further imports, unlike the tables.
        write_json(summary)
    else:
        write_tables(tables)


def _tables(summary: Mapping[str, Any]) -> list[RenderableType]:
    """Return the tables and lines printed at the end of a run."""
    from mxrun.report.confusion import confusion_tables
    from mxrun.report.profile import run_tables
    from mxrun.report.tables import contention_lines, data_wait_lines, train_table

    return [
        train_table(summary),
        *data_wait_lines(summary),
        *contention_lines(summary, summary["threads"], "threads={}"),
        *confusion_tables(summary["eval"], summary["classes"]),
        *run_tables(summary.get("profile", {})),
    ]
