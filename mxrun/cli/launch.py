"""`mxrun launch`."""

from __future__ import annotations

import typer

from mxrun.cli.registry import COMMANDS
from mxrun.options.launch import LaunchOptions


@COMMANDS.register("launch", order=25, foreign={"launch": "mpirun torchrun distributed"})
def launch(options: LaunchOptions) -> None:
    """Train on several processes, and restart the run when one of them is lost.

    Starts `mpirun -n N mxrun train CONFIG kvstore=dist_sync`. When a process is killed or fails,
    the run goes on from its last checkpoint, to the same bits; if that fails without a further
    checkpoint, with half as many processes, down to --min-ranks. On SIGINT and SIGTERM all
    processes finish the same step, the run is saved, and the exit code is 75.

    \b
    Examples:
      mxrun launch net.yaml -n 4
      mxrun launch net.yaml -n 4 --max-restarts 5 --min-ranks 1
      mxrun launch net.yaml -n 2 --resume
    """
    from mxrun.commands import launch as command
    from mxrun.report.notes import write_note

    code = command.launch(options, write_note)
    if code:
        raise typer.Exit(code)
