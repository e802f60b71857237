"""Output of `engine`: lines while jobs run, and the table of how they ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from mxrun.base.locks import new_lock
from mxrun.report.console import stderr
from mxrun.report.figures import duration_text
from mxrun.report.streams import optional_stderr
from mxrun.report.tables import titled_table
from mxrun.runtime.jobs import JobResult, JobState

_STYLES = {
    JobState.DONE: "green",
    JobState.FAILED: "bold red",
    JobState.SKIPPED: "yellow",
    JobState.STOPPED: "yellow",
}
# Lines of a failed job's output that are shown; --verbose shows all.
_MAX_LINES = 20
_INDENT = "  | "


@contextmanager
def job_lines(verbose: bool = False) -> Iterator[JobLines]:
    """Context manager that gives an observer which writes to standard error.

    On a terminal, the jobs that run are shown below. verbose: show the output of all jobs in full.
    """
    console = stderr()
    lines = JobLines(console, verbose)
    if not sys.stderr.isatty():
        yield lines
        return
    with Live(lines.running, console=console, refresh_per_second=8, transient=True):
        yield lines


class JobLines:
    """Observer of jobs that writes a line for each one that has ended."""

    def __init__(self, console: Console, verbose: bool) -> None:
        self.running = RunningJobs()
        self._console, self._verbose = console, verbose

    def job_started(self, name: str) -> None:
        """Show a job among those that run."""
        self.running.started(name)

    def job_ended(self, result: JobResult) -> None:
        """Write how a job has ended, and its output if it failed."""
        self.running.ended(result.name)
        time_text = "" if result.seconds is None else f" in {duration_text(result.seconds)}"
        reason = f": {result.reason}" if result.reason else ""
        line = Text.assemble(
            (result.state.value, _STYLES[result.state]), f" {result.name}{time_text}{reason}"
        )
        with optional_stderr():
            self._print(line)
            for each in self._output(result):
                self._print(Text(f"{_INDENT}{each}"))

    def _output(self, result: JobResult) -> Iterator[str]:
        """Yield the lines of a job's output that are shown."""
        if result.state is not JobState.FAILED and not self._verbose:
            return
        lines = result.output.splitlines()
        left_out = 0 if self._verbose else max(0, len(lines) - _MAX_LINES)
        if left_out or result.omitted:
            what = f"{left_out} lines" if left_out else f"{result.omitted} bytes"
            hint = "; --verbose shows them" if left_out else ""
            yield f"... {what} before this{hint}"
        yield from lines[left_out:]

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


class RunningJobs:
    """Line with the jobs that run and for how long, made anew a few times a second."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._guard = new_lock()
        self._ended = 0

    def started(self, name: str) -> None:
        """Add a job."""
        with self._guard:
            self._since[name] = time.monotonic()

    def ended(self, name: str) -> None:
        """Remove a job, which need not have started."""
        with self._guard:
            self._since.pop(name, None)
            self._ended += 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the line."""
        with self._guard:
            since, ended = dict(self._since), self._ended
        now = time.monotonic()
        parts = [f"{name} {duration_text(now - start)}" for name, start in since.items()]
        text = f"{ended} ended, {len(since)} running: {', '.join(parts)}"
        yield Text(text, "cyan", no_wrap=True, overflow="ellipsis")


def job_tables(report: Mapping[str, Any]) -> list[Any]:
    """Return the table of jobs and a line with their numbers."""
    table = titled_table(report["file"], names=("job", "why"), least_important=("start",))
    table.add_column("job", no_wrap=True)
    table.add_column("end", no_wrap=True)
    table.add_column("start", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("why")
    for job in report["jobs"]:
        state = JobState(job["state"])
        table.add_row(
            Text(job["name"]),
            Text(state.value, _STYLES[state]),
            *("-" if job[key] is None else duration_text(job[key]) for key in _TIMES),
            Text(job["reason"]),
        )
    counts = [f"{count} {state}" for state, count in report["counts"].items() if count]
    workers = report["workers"]
    line = (
        f"{', '.join(counts)}; {duration_text(report['seconds'])}, {report['engine']} engine, "
        f"{workers} worker{'' if workers == 1 else 's'}"
    )
    return [table, Text(line)]


_TIMES = ("start_s", "seconds")
