"""Jobs, each a process of its own, that the dependency engine orders by what they read and write.

The result is that of running the jobs one after another in the order of the list.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import IO, Protocol

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import MxrunError
from mxrun.base.locks import new_lock
from mxrun.runtime.child_processes import ChildProcesses
from mxrun.runtime.engine.failure import Failure, JobError
from mxrun.runtime.engine.interface import Engine, RunContext, Variable

_MAX_OUTPUT = 1 << 20


@dataclass(frozen=True)
class Job:
    """Command with the names of the variables that it reads, writes and updates."""

    name: str
    command: tuple[str, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()


class JobState(str, Enum):
    """How a job has ended: `skipped` because of a failure before it, `stopped` by a signal."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    STOPPED = "stopped"


@dataclass(frozen=True)
class JobResult:
    """End of a job.

    reason: why it is not done; for a skipped one `cause` names the job that has failed. start_s:
    seconds from the start of the run, None if the job did not start; seconds: its duration. output:
    the end of what it has written, at most 1 MiB; omitted: bytes before that.
    """

    name: str
    state: JobState
    exit_code: int | None = None
    reason: str = ""
    cause: str | None = None
    start_s: float | None = None
    seconds: float | None = None
    output: str = ""
    omitted: int = 0


class JobObserver(Protocol):
    """Receiver of what happens to jobs; one call at a time, from any thread."""

    def job_started(self, name: str) -> None:
        """A job starts."""

    def job_ended(self, result: JobResult) -> None:
        """A job has ended, or is skipped."""


class _JobFailed(MxrunError):
    """Failure of a job's process."""


class _JobStopped(MxrunError):
    """End of a job by a signal to this process."""


def run_jobs(
    engine: Engine,
    jobs: Sequence[Job],
    folder: Path,
    processes: ChildProcesses,
    observer: JobObserver,
) -> list[JobResult]:
    """Run jobs in `folder` and return their ends, in the order of the list.

    A job that reads or updates a variable which a failed job should have written is skipped.
    """
    return _Run(engine, folder, processes, observer).run(jobs)


class _Run:
    """One run of a list of jobs."""

    def __init__(
        self, engine: Engine, folder: Path, processes: ChildProcesses, observer: JobObserver
    ) -> None:
        self._engine, self._folder = engine, folder
        self._processes, self._observer = processes, observer
        self._lock = new_lock()
        self._variables: dict[str, Variable] = {}
        self._results: dict[str, JobResult] = {}
        self._started = time.monotonic()

    def run(self, jobs: Sequence[Job]) -> list[JobResult]:
        for job in jobs:
            execution = _Execution(job, self._folder, self._processes, self._begun)
            self._engine.push_sync(
                execution.run,
                self._of(job.reads),
                self._of(job.writes),
                self._of(job.updates),
                name=job.name,
                on_done=self._ended(execution),
            )
        # Each failure is in the result of its job.
        with suppress(JobError):
            self._engine.wait_for_all()
        return [self._results[job.name] for job in jobs]

    def _of(self, names: Sequence[str]) -> list[Variable]:
        for name in names:
            if name not in self._variables:
                self._variables[name] = self._engine.new_variable(name)
        return [self._variables[name] for name in names]

    def _begun(self, name: str) -> float:
        with self._lock:
            self._observer.job_started(name)
        return time.monotonic() - self._started

    def _ended(self, execution: _Execution) -> Callable[[Failure | None], None]:
        def on_done(failure: Failure | None) -> None:
            result = execution.result(failure)
            with self._lock:
                self._results[result.name] = result
                self._observer.job_ended(result)

        return on_done


class _Execution:
    """One execution of a job's command."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        processes: ChildProcesses,
        begun: Callable[[str], float],
    ) -> None:
        self._job, self._folder, self._processes, self._begun = job, folder, processes, begun
        self._start_s: float | None = None
        self._seconds: float | None = None
        self._exit_code: int | None = None
        self._output, self._omitted = "", 0

    def run(self, context: RunContext) -> None:
        """Run the process. Raises _JobFailed or _JobStopped."""
        del context
        if self._processes.signal is not None:
            raise _JobStopped("not started")
        self._start_s = self._begun(self._job.name)
        started = time.monotonic()
        try:
            with tempfile.TemporaryFile() as output:
                code = self._processes.run(self._job.command, self._folder, output)
                self._output, self._omitted = _end_of(output)
        except OSError as error:
            raise _JobFailed(f"cannot be started: {error.strerror or error}") from error
        finally:
            self._seconds = time.monotonic() - started
        if code is None:
            raise _JobStopped("stopped")
        self._exit_code = code
        if code < 0:
            raise _JobFailed(f"killed by {signal.Signals(-code).name}")
        if code > 0:
            raise _JobFailed(f"exit code {code}")

    def result(self, failure: Failure | None) -> JobResult:
        """Return the job's end, given its failure or the one because of which it did not run."""
        state, cause = JobState.DONE, None
        reason = "" if failure is None else str(failure.error)
        if failure is not None and isinstance(failure.error, _JobStopped):
            state = JobState.STOPPED
            reason = reason if self._start_s is not None else "not started"
        elif failure is not None and failure.job != self._job.name:
            state, cause, reason = JobState.SKIPPED, failure.job, f"{failure.job} failed"
        elif failure is not None:
            state = JobState.FAILED
        return JobResult(
            self._job.name,
            state,
            self._exit_code,
            reason,
            cause,
            self._start_s,
            self._seconds,
            output=self._output,
            omitted=self._omitted,
        )


def _end_of(file: IO[bytes]) -> tuple[str, int]:
    """Return the end of a file as text, and the number of bytes before it."""
    size = file.seek(0, os.SEEK_END)
    omitted = max(0, size - _MAX_OUTPUT)
    file.seek(omitted)
    return file.read().decode("utf-8", "replace"), omitted
