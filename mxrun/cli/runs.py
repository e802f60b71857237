"""`mxrun runs`."""

from __future__ import annotations

import typer

from mxrun.cli.registry import COMMANDS
from mxrun.options.runs import RunsOptions


@COMMANDS.register("runs", order=140)
def runs(options: RunsOptions) -> None:
    """List the runs, or compare some of them.

    The list has one line a run: its state, its epochs, the best value of a metric with its epoch,
    and its sizes. The metric is that of train.checkpoint.best or train.early_stopping, or the first
    one. A comparison has the metrics beside each other, and the config keys that differ.

    \b
    Examples:
      mxrun runs
      mxrun runs --sort accuracy
      mxrun runs first second
      mxrun runs --runs /data/runs --json
    """
    from mxrun.commands import runs as command
    from mxrun.report.notes import write_note
    from mxrun.report.result import write_json, write_tables
    from mxrun.report.runs import comparison_tables, list_tables

    if options.names and options.sort is not None:
        raise typer.BadParameter(
            "--sort is for the list of all runs: leave out --sort, or the names of runs"
        )
    report = command.compare_runs(options) if options.names else command.list_runs(options)
    if options.json:
        write_json(report)
    elif options.names:
        write_tables(comparison_tables(report))
    elif report["runs"]:
        write_tables(list_tables(report))
    else:
        write_note(f"there are no runs in {report['runs_dir']}: `mxrun train CONFIG` makes one")
