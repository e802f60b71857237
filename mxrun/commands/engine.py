"""Implementation of `engine`: jobs of a file, ordered by what they read and write."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from mxrun.base.child_python import run_code
from mxrun.base.dataclass import dataclass
from mxrun.config.jobs import JobSection, load_jobs
from mxrun.options.engine import EngineOptions
from mxrun.preparation.notes import Notify
from mxrun.runtime.child_processes import ChildProcesses
from mxrun.runtime.engine.default import new_engine
from mxrun.runtime.engine.interface import Engine
from mxrun.runtime.engine.threaded import ThreadedEngine
from mxrun.runtime.jobs import Job, JobObserver, JobResult, JobState, run_jobs
from mxrun.runtime.profiler import Event

_THREADED = "threaded"


@dataclass(frozen=True)
class EngineReport:
    """Ends of all jobs, in the order of the file.

    engine: kind. seconds: of all jobs together. signal: number of the signal that has stopped the
    jobs. events: time spans of the jobs that ran.
    """

    file: str
    engine: str
    workers: int
    seconds: float
    results: tuple[JobResult, ...]
    signal: int | None
    events: tuple[Event, ...] = field(repr=False)

    @property
    def exit_code(self) -> int:
        """0 if all jobs are done, 1 if not, 128 and the signal's number if one has stopped them."""
        if self.signal is not None:
            return 128 + self.signal
        return int(any(result.state is not JobState.DONE for result in self.results))

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        counts = Counter(result.state for result in self.results)
        return {
            "file": self.file,
            "engine": self.engine,
            "workers": self.workers,
            "seconds": self.seconds,
            "counts": {state.value: counts[state] for state in JobState},
            "jobs": [_as_json(result) for result in self.results],
            "exit_code": self.exit_code,
        }


def run_engine(options: EngineOptions, observer: JobObserver, notify: Notify) -> EngineReport:
    """Run the jobs of a file in its folder and return how they have ended.

    Raises UserError with every problem of the file.
    """
    kind = options.engine
    listed, notes = load_jobs(options.jobs)
    for note in notes:
        notify(note)
    count = options.workers or listed.workers or len(os.sched_getaffinity(0))
    count = count if kind == _THREADED else 1
    engine: Engine = ThreadedEngine(count) if kind == _THREADED else new_engine(kind)
    events: list[Event] = []
    engine.record(events.append)
    folder = options.jobs.resolve().parent
    jobs = [
        Job(
            job.name,
            command=_command(job, folder),
            reads=job.reads,
            writes=job.writes,
            updates=job.updates,
        )
        for job in listed.jobs
    ]
    start = time.monotonic()
    with ChildProcesses() as processes:
        results = run_jobs(engine, jobs, folder, processes, observer)
        engine.close()
    seconds = time.monotonic() - start
    started = {result.name for result in results if result.start_s is not None}
    spans = sorted(
        (event for event in events if event.name in started), key=lambda event: event.start_ns
    )
    return EngineReport(
        str(options.jobs), kind, count, seconds, tuple(results), processes.signal, tuple(spans)
    )


def _command(job: JobSection, folder: Path) -> tuple[str, ...]:
    """Return the command of a job; a shell stops at the first command that fails."""
    if job.python is not None:
        return tuple(run_code(job.python, beside=folder))
    assert job.run is not None
    bash = shutil.which("bash")
    if bash is None:
        return ("sh", "-e", "-c", job.run)
    return (bash, "-e", "-o", "pipefail", "-c", job.run)


def _as_json(result: JobResult) -> Mapping[str, Any]:
    """Return a job's end as JSON; the output of a job that is done is left out."""
    values = asdict(result)
    values["state"] = result.state.value
    if result.state is JobState.DONE:
        values["output"], values["omitted"] = None, None
    return values
