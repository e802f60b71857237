"""`mxrun engine`."""

from __future__ import annotations

import typer

from mxrun.cli.registry import COMMANDS
from mxrun.options.engine import EngineOptions


@COMMANDS.register("engine", order=180, foreign={"engine": "jobs dag make"})
def engine(options: EngineOptions) -> None:
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

    check_outputs({options.jobs: "DAG.yaml"}, {"--trace": options.trace})
    with job_lines(options.verbose) as lines:
        report = command.run_engine(options, lines, write_note)
    if options.trace is not None:
        write_trace(options.trace, report.events)
    if options.json:
        write_json(report.to_json())
    else:
        write_tables(job_tables(report.to_json()))
    if report.exit_code:
        raise typer.Exit(report.exit_code)
