"""`mxrun engine`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from mxrun.cli.arguments import Json


class EngineKind(str, Enum):
    """Kind of the engine."""

    THREADED = "threaded"
    NAIVE = "naive"


Jobs = Annotated[Path, typer.Argument(metavar="DAG.yaml", help="A YAML file that lists jobs.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        metavar="N",
        help="Number of jobs that may run at once.",
        show_default="the file's, or the cores",
    ),
]
Kind = Annotated[
    EngineKind, typer.Option(help="naive runs one job after another, in the order of the file.")
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a trace of the jobs, for ui.perfetto.dev."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the output of every job, in full.")
]


def engine(
    jobs: Jobs,
    workers: Workers = None,
    engine: Kind = EngineKind.THREADED,
    trace: Trace = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Run jobs, ordered by what they read and write.

    A job is a shell command (run) or Python code (python). It names the variables, such as files,
    that it reads, writes and updates. The result is that of running the jobs one after another, in
    the order of the file; jobs that share nothing, or only read the same, run at once.

    Jobs run in the file's folder. If one fails, the end of its output is shown, the jobs that need
    what it should have written are skipped, and all others run; the exit code is then 1. Ctrl-C
    ends the jobs that run.

    \b
    Examples:
      mxrun engine jobs.yaml
      mxrun engine jobs.yaml --workers 8 --trace jobs.json
      mxrun engine jobs.yaml --engine naive --verbose
      mxrun engine jobs.yaml --json
    """
    from mxrun.base.files import check_outputs
    from mxrun.commands import engine as command
    from mxrun.report.jobs import job_lines, job_tables
    from mxrun.report.notes import write_note
    from mxrun.report.result import write_json, write_tables
    from mxrun.report.trace import write_trace

    check_outputs({jobs: "DAG.yaml"}, {"--trace": trace})
    with job_lines(verbose) as lines:
        report = command.run_engine(jobs, engine.value, workers, lines, write_note)
    if trace is not None:
        write_trace(trace, report.events)
    if json:
        write_json(report.to_json())
    else:
        write_tables(job_tables(report.to_json()))
    if report.exit_code:
        raise typer.Exit(report.exit_code)
