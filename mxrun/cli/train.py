"""`mxrun train`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mxrun.cli.arguments import BatchOrMax, Config, Json, Overrides, RunsFolder, batch_size
from mxrun.cli.clock import STARTED_AT

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mxrun.commands.train import TrainingResult


Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing run of the same name.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run of the same name, to the same bits.")
]
AllowChanges = Annotated[
    bool,
    typer.Option(
        "--allow-changes",
        help="With --resume: continue although config, data, threads or library have changed; "
        "the result is that of a different run.",
    ),
]
Profile = Annotated[
    bool, typer.Option("--profile", help="Time every call, and show where the time goes.")
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a trace of the first steps, for ui.perfetto.dev."),
]


def train(
    config: Config,
    overrides: Overrides = None,
    batch: BatchOrMax = None,
    json: Json = False,
    overwrite: Overwrite = False,
    resume: Resume = False,
    allow_changes: AllowChanges = False,
    profile: Profile = False,
    trace: Trace = None,
    runs: RunsFolder = None,
) -> None:
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

    _check_options(resume, overwrite, allow_changes)
    with status(f"preparing {config}"):
        from mxrun.base.files import check_outputs
        from mxrun.base.flags import runs_folder
        from mxrun.commands import train as command
        from mxrun.report.progress import report_abrupt_end, training_observer

        request = command.TrainRequest(
            "resume" if resume else "overwrite" if overwrite else "refuse",
            allow_changes,
            profile or trace is not None,
            STARTED_AT,
            batch_size(batch),
            runs_folder(runs),
            command.Interruption(before_end=report_abrupt_end),
        )
        check_outputs({Path(config): "CONFIG"}, {"--trace": trace})
        with training_observer() as observer:
            trained = command.train(config, overrides or (), observer, request)
    _report(trained, profile, trace, json)


def _check_options(resume: bool, overwrite: bool, allow_changes: bool) -> None:
    """Raise BadParameter for options that contradict each other or lack the option they modify."""
    if resume and overwrite:
        raise typer.BadParameter(
            "--resume continues the run and --overwrite replaces it: give only one of them"
        )
    if allow_changes and not resume:
        raise typer.BadParameter(
            "--allow-changes applies to --resume only: add --resume, or leave it out"
        )


def _report(trained: TrainingResult, profile: bool, trace: Path | None, json: bool) -> None:
    """Write the summary of the run, and the trace."""
    from mxrun.report.result import write_json, write_tables
    from mxrun.report.trace import write_trace

    summary = trained.summary.to_json()
    if trained.profile is not None:
        if trace is not None:
            write_trace(trace, trained.profile.events())
        summary |= {"profile": trained.profile.to_json()} if profile else {}
    if json:
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
        *contention_lines(summary, summary["threads"], "threads={} (this is a different run)"),
        *confusion_tables(summary["eval"], summary["classes"]),
        *run_tables(summary.get("profile", {})),
    ]
