"""Files of jobs: every problem with its place in one pass, and notes on likely mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxrun.base.errors import UserError
from mxrun.config.jobs import JobsFile, load_jobs


def loaded(text: str) -> tuple[JobsFile, tuple[str, ...]]:
    Path("jobs.yaml").write_text(text)
    return load_jobs(Path("jobs.yaml"))


def refused(text: str) -> list[str]:
    """Return the problems: place, sentence and the lines below it, joined by ` | `."""
    with pytest.raises(UserError) as raised:
        loaded(text)
    return [str(each).replace("\n  ", " | ") for each in raised.value.diagnostics]


@pytest.fixture(autouse=True)
def _here(empty_folder: Path) -> None:
    """Read files of the current folder."""


def test_a_file_of_jobs() -> None:
    file, notes = loaded(
        """
workers: 3
jobs:
  - name: fetch the data
    run: curl -o raw.txt example.org
    writes: [raw.txt]
  - {name: clean, python: "import cleaning", reads: [raw.txt], updates: [any text: even this]}
""".replace("[any text: even this]", '["any text: even this"]')
    )
    assert file.workers == 3
    assert [job.name for job in file.jobs] == ["fetch the data", "clean"]
    assert file.jobs[1].updates == ("any text: even this",)
    assert notes == ()


def test_all_problems_are_found_in_one_pass() -> None:
    assert refused(
        """worker: 2
jobs:
  - name: one
    run: "true"
    read: [a]
    writes: [b, c, b]
  - name: one
    run: "true"
    python: pass
    reads: [a, 1]
    updates: [a]
  - name: three
    writes: d
"""
    ) == [
        "jobs.yaml:1:1: unknown key 'worker' | hint: did you mean 'workers'?",
        "jobs.yaml:5:5: unknown key 'read' in jobs[0] | hint: did you mean 'reads'?",
        "jobs.yaml:6:20: the job 'one' names 'b' twice in writes | expected: each variable once in "
        "a job | hint: first at jobs.yaml:6:14",
        "jobs.yaml:7:11: two jobs are called 'one' | expected: a name of its own for each job | "
        "hint: first at jobs.yaml:3:11",
        "jobs.yaml:9:5: the job 'one' has run and python | expected: either run or python | "
        "got: run and python",
        "jobs.yaml:10:16: jobs[1].reads[1] cannot be 1 | expected: text of at least 1 character | "
        "got: 1 (an integer) | hint: write it in quotes",
        "jobs.yaml:11:15: the job 'one' names 'a' in reads and in updates | expected: each "
        "variable once in a job | hint: first at jobs.yaml:10:13; a variable that the job needs "
        "and changes is in updates alone",
        "jobs.yaml:12:5: the job 'three' has nothing to run | expected: either run or python | "
        "got: neither",
        "jobs.yaml:13:13: jobs[2].writes cannot be 'd' | expected: [text of at least 1 character, "
        "...] | got: 'd' (text) | hint: write [d]",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "jobs.yaml:1:1: a file of jobs is a mapping | expected: jobs: [...] | got: nothing"),
        ("- a", "jobs.yaml:1:1: a file of jobs is a mapping | expected: jobs: [...] | got: a list"),
        ("jobs: []", "jobs.yaml:1:7: jobs cannot be [] "),
        ("workers: 2", "jobs.yaml:1:1: jobs is missing "),
        ("jobs: [run]", "jobs.yaml:1:8: jobs[0] cannot be 'run' "),
        ("jobs: [{name: a, run: b}]\nworkers: 0", "jobs.yaml:2:10: workers cannot be 0 "),
        ("jobs: [{name: '', run: b}]", "jobs.yaml:1:15: jobs[0].name cannot be '' "),
        ("jobs: [", "jobs.yaml:1:8: not valid YAML"),
    ],
)
def test_a_wrong_file_is_refused(text: str, problem: str) -> None:
    [found] = refused(text)
    assert found.startswith(problem)


def test_notes_on_variables_that_look_like_mistakes() -> None:
    text = """
jobs:
  - {name: use, run: "true", reads: [table]}
  - {name: make, run: "true", writes: [table, picture]}
  - {name: show, run: "true", reads: [pictures, source.txt]}
"""
    _, notes = loaded(text)
    assert notes == (
        "jobs.yaml:3:38: 'use' reads 'table' before the jobs that write it, which are below it",
        "jobs.yaml:5:39: no job writes 'pictures': did you mean 'picture'?",
    )
    # A file that exists comes from outside.
    Path("pictures").touch()
    assert len(loaded(text)[1]) == 1
