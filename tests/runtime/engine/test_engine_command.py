"""`mxrun engine` in a real process: order, failures, traces, output and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from commands import HANG_S, MXRUN, mxrun, on_terminal, refused

from mxrun.commands.engine import run_engine
from mxrun.options.engine import EngineOptions
from mxrun.runtime.jobs import JobResult, JobState

pytestmark = pytest.mark.usefixtures("empty_folder")


def jobs(text: str, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run jobs with --json; return the report with the jobs by name."""
    Path("jobs.yaml").write_text(text)
    done = mxrun("engine", "jobs.yaml", *arguments, "--json")
    assert done.returncode == code, done.stderr
    report = json.loads(done.stdout)
    assert report["exit_code"] == code
    return {**report, "jobs": {job["name"]: job for job in report["jobs"]}}


FAILING = """
jobs:
  - {name: fetch, run: "echo raw > raw; echo no route to host; exit 7", writes: [raw]}
  - {name: clean, run: "cp raw clean", reads: [raw], writes: [clean]}
  - {name: train, run: "cp clean model", reads: [clean], updates: [log]}
  - {name: other, run: "echo other > other", writes: [other]}
  - {name: again, run: "echo again > raw", writes: [raw]}
  - {name: use, run: "cat raw other > both", reads: [raw, other], writes: [both]}
  - {name: killed, run: "kill -9 $$", writes: [nothing]}
"""


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_E12_a_failure_travels_and_others_finish(kind: str) -> None:
    report = jobs(FAILING, "--engine", kind, "--workers", "2", code=1)
    assert report["counts"] == {"done": 3, "failed": 2, "skipped": 2, "stopped": 0}
    ends = {
        name: (job["state"], job["cause"], job["reason"]) for name, job in report["jobs"].items()
    }
    assert ends == {
        "fetch": ("failed", None, "exit code 7"),
        "clean": ("skipped", "fetch", "fetch failed"),
        "train": ("skipped", "fetch", "fetch failed"),
        "other": ("done", None, ""),
        "again": ("done", None, ""),
        "use": ("done", None, ""),
        "killed": ("failed", None, "killed by SIGKILL"),
    }
    assert report["jobs"]["fetch"]["exit_code"] == 7
    assert report["jobs"]["fetch"]["output"] == "no route to host\n"
    assert report["jobs"]["clean"]["start_s"] is None
    assert Path("both").read_text() == "again\nother\n"
    assert not Path("clean").exists()


MEETING = """
jobs:
  - {name: left, run: "echo here > meeting", writes: [left]}
  - {name: right, run: "read line < meeting", writes: [right]}
  - {name: after, run: "true", reads: [left, right]}
"""


def test_E5_jobs_that_share_nothing_overlap_in_the_trace() -> None:
    """Each of the two jobs waits until the other has opened the pipe."""
    os.mkfifo("meeting")
    jobs(MEETING, "--workers", "2", "--trace", "trace.json")
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    spans = {each["name"]: each for each in events if each["ph"] == "X"}
    left, right, after = (spans[name] for name in ("left", "right", "after"))
    assert left["tid"] != right["tid"]
    assert left["ts"] < right["ts"] + right["dur"]
    assert right["ts"] < left["ts"] + left["dur"]
    assert after["ts"] >= max(each["ts"] + each["dur"] for each in (left, right))
    tracks = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert len({tracks[left["tid"]], tracks[right["tid"]]}) == 2


def test_E2_jobs_run_in_the_order_of_the_file_where_they_share_a_variable() -> None:
    lines = [
        f'  - {{name: job {n}, run: "echo {n} >> log", updates: [log], reads: [input {n % 3}]}}'
        for n in range(40)
    ]
    jobs("jobs:\n" + "\n".join(lines), "--workers", "16")
    assert Path("log").read_text().split() == [str(n) for n in range(40)]


@pytest.mark.commands
def test_python_jobs_run_in_the_folder_of_the_file() -> None:
    Path("work").mkdir()
    Path("work/cleaning.py").write_text("def main(): print('cleaned')")
    Path("work/jobs.yaml").write_text(
        "jobs:\n  - name: clean\n    python: |\n      import cleaning\n"
        "      cleaning.main()\n      open('made', 'w').close()\n"
    )
    done = mxrun("engine", "work/jobs.yaml", "--verbose")
    assert done.returncode == 0
    assert done.stderr.splitlines()[1:] == ["  | cleaned"]
    assert Path("work/made").exists()


class Ignored:
    """Observer of jobs that does nothing."""

    def job_started(self, name: str) -> None:
        """Ignore it."""

    def job_ended(self, result: JobResult) -> None:
        """Ignore it."""


def test_a_full_disk_for_temporary_files_is_the_reason_of_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As on a full disk, there is no folder in which a file can be made.
    monkeypatch.setattr(tempfile, "tempdir", str(Path("missing").resolve()))
    Path("jobs.yaml").write_text("jobs:\n  - {name: a, run: echo a}\n")
    options = EngineOptions(jobs=Path("jobs.yaml"), engine="naive")
    report = run_engine(options, Ignored(), lambda note: None)
    (job,) = report.results
    assert (job.state, job.reason) == (
        JobState.FAILED,
        "cannot be started: No such file or directory",
    )


@pytest.mark.commands
def test_shell_commands_stop_at_the_first_failure() -> None:
    report = jobs(
        "jobs:\n  - name: lines\n    run: |\n      false\n      touch made\n"
        "  - name: pipe\n    run: false | cat\n",
        code=1,
    )
    assert report["counts"]["failed"] == 2
    assert not Path("made").exists()


@pytest.mark.commands
def test_the_end_of_a_failed_jobs_output_is_shown() -> None:
    text = "jobs:\n  - {name: long, run: 'seq 100; echo last >&2; exit 1'}\n"
    Path("jobs.yaml").write_text(text + "  - {name: quiet, run: echo unseen}\n")
    done = mxrun("engine", "jobs.yaml")
    assert done.returncode == 1
    assert "unseen" not in done.stderr
    shown = [line[4:] for line in done.stderr.splitlines() if line.startswith("  | ")]
    assert shown == [
        "... 81 lines before this; --verbose shows them",
        *map(str, range(82, 101)),
        "last",
    ]
    assert "failed" in done.stdout
    assert "exit code 1" in done.stdout
    full = mxrun("engine", "jobs.yaml", "--verbose").stderr
    assert full.count("  | ") == 102
    assert "unseen" in full


@pytest.mark.commands
def test_jobs_are_shown_on_a_terminal() -> None:
    Path("jobs.yaml").write_text(FAILING)
    code, shown = on_terminal("engine", "jobs.yaml", stream="stderr")
    assert code == 1
    assert "fetch in" in shown
    assert "no route to host" in shown


@pytest.mark.commands
def test_a_wrong_file_is_refused_before_any_job() -> None:
    Path("jobs.yaml").write_text(
        "jobs:\n  - {name: a, run: touch made}\n  - {name: b, rum: x, reads: [a, a]}\n"
    )
    message = refused("engine", "jobs.yaml")
    for part in ("jobs.yaml:3:15: unknown key 'rum'", "did you mean 'run'?", "names 'a' twice"):
        assert part in message
    assert not Path("made").exists()
    assert "there is no such file" in refused("engine", "other.yaml")
    assert "jobs.yaml" in refused("engine", "jobs.yaml", "--trace", "jobs.yaml")


ENDLESS = """
jobs:
  - {name: endless, run: "TRAP echo $$ > ready; exec sleep 1000000", writes: [a]}
  - {name: dependant, run: "true", reads: [a]}
  - {name: queued, run: "true", writes: [b]}
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["threaded", "naive"])
@pytest.mark.commands
def test_a_signal_ends_the_jobs(kind: str, number: signal.Signals) -> None:
    code, output, group = interrupted(ENDLESS.replace("TRAP", ""), kind, [number])
    assert code == 128 + number
    report = json.loads(output)
    assert report["exit_code"] == code
    assert [job["state"] for job in report["jobs"]] == ["stopped"] * 3
    assert [job["reason"] for job in report["jobs"]] == ["stopped", "not started", "not started"]
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


@pytest.mark.commands
def test_a_second_signal_kills_jobs_that_ignore_the_first() -> None:
    text = ENDLESS.replace("TRAP", "trap '' TERM INT;")
    code, _, group = interrupted(text, "threaded", [signal.SIGINT, signal.SIGINT])
    assert code == 128 + signal.SIGINT
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def interrupted(text: str, kind: str, numbers: list[signal.Signals]) -> tuple[int, str, int]:
    """Send signals to a run once its first job runs; return code, output, the job's group."""
    Path("jobs.yaml").write_text(text)
    os.mkfifo("ready")
    command = [*MXRUN, "engine", "jobs.yaml", "--json", "--workers", "1", "--engine", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        group = int(Path("ready").read_text())
        for number in numbers:
            process.send_signal(number)
        output, _ = process.communicate(timeout=HANG_S)
    return process.returncode, output, group
