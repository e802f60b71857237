"""Files of jobs for `mxrun engine`: sections, and their reading with all problems in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from mxrun.base.description import describe_value
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.near_names import Suggestions
from mxrun.config.load import load_file
from mxrun.config.marked import SourceNode
from mxrun.config.section import Section
from mxrun.config.translate import translate

_MAX_WORKERS = 1024
_USES = ("reads", "writes", "updates")
_BODIES = ("run", "python")
# Each suggestion compares a name with all others.
_MAX_SUGGESTIONS = 20

Text = Annotated[str, StringConstraints(min_length=1)]


class JobSection(Section):
    """Job: a command or Python code, and the variables that it uses."""

    name: Text = Field(description="The job's name.", examples=["clean"])
    run: Text | None = Field(
        default=None,
        description="Shell commands; the first one that fails ends the job.",
        examples=["sort raw.txt > sorted.txt"],
    )
    python: Text | None = Field(
        default=None,
        description="Python code, run by the interpreter that runs mxrun.",
        examples=["import cleaning; cleaning.main()"],
    )
    reads: tuple[Text, ...] = Field(
        default=(), description="Variables that the job needs.", examples=[["raw"]]
    )
    writes: tuple[Text, ...] = Field(
        default=(),
        description="Variables that the job makes anew, whatever they were.",
        examples=[["clean"]],
    )
    updates: tuple[Text, ...] = Field(
        default=(), description="Variables that the job needs and changes.", examples=[["log"]]
    )


class JobsFile(Section):
    """List of jobs, in the order in which they would run one after another."""

    workers: Annotated[int, Field(ge=1, le=_MAX_WORKERS)] | None = Field(
        default=None, description="Number of jobs that may run at once; default: the cores."
    )
    jobs: tuple[JobSection, ...] = Field(
        min_length=1,
        description="The jobs.",
        examples=[[{"name": "greet", "run": "echo hello", "writes": ["greeting"]}]],
    )


def load_jobs(path: Path) -> tuple[JobsFile, tuple[str, ...]]:
    """Read a file of jobs; return it with notes on variables that look like mistakes.

    Raises UserError with every problem of the file.
    """
    diagnostics = Diagnostics()
    tree = load_file(path, str(path), diagnostics)
    if not isinstance(tree.value, Mapping):
        raise UserError(
            Diagnostic(
                "a file of jobs is a mapping",
                tree.place,
                "jobs: [...]",
                "nothing" if tree.value is None else describe_value(tree.value),
            )
        )
    found: JobsFile | None = None
    try:
        found = JobsFile.model_validate(tree.plain())
    except ValidationError as error:
        diagnostics += translate(error, tree, JobsFile, grammar=())
    jobs = tree.find("jobs").value
    listed = jobs if isinstance(jobs, tuple) else ()
    diagnostics += _name_problems(listed)
    for job in listed:
        if isinstance(job.value, Mapping):
            diagnostics += _body_problems(job, job.value)
            diagnostics += _use_problems(job, job.value)
    if found is None or diagnostics:
        raise UserError(sorted(diagnostics, key=_position))
    return found, tuple(_notes(found, tree, path.parent))


def _position(problem: Diagnostic) -> tuple[int, int]:
    return (problem.place.line, problem.place.column) if problem.place else (0, 0)


def _named(job: SourceNode) -> str:
    name = job.find("name").value
    return f"the job {name!r}" if isinstance(name, str) else "the job"


def _name_problems(jobs: tuple[SourceNode, ...]) -> Iterator[Diagnostic]:
    first: dict[str, SourceLocation] = {}
    for job in jobs:
        name = job.find("name")
        if isinstance(name.value, str) and name.value:
            if name.value in first:
                yield Diagnostic(
                    f"two jobs are called {name.value!r}",
                    name.place,
                    "a name of its own for each job",
                    hint=f"first at {first[name.value]}",
                )
            first.setdefault(name.value, name.place)


def _body_problems(job: SourceNode, keys: Mapping[str, SourceNode]) -> Iterator[Diagnostic]:
    """Yield the problem of a job without exactly one body; null counts as absent.

    An unknown key may be a misspelt body, and is a problem of its own.
    """
    given = [key for key in _BODIES if key in keys and keys[key].value is not None]
    if len(given) == 1 or (not given and not keys.keys() <= JobSection.model_fields.keys()):
        return
    place = keys[given[1]].start if given else job.start
    problem = f"{_named(job)} has {'run and python' if given else 'nothing to run'}"
    yield Diagnostic(problem, place, "either run or python", " and ".join(given) or "neither")


def _use_problems(job: SourceNode, keys: Mapping[str, SourceNode]) -> Iterator[Diagnostic]:
    """Yield a problem for each variable that a job names again."""
    first: dict[str, tuple[str, SourceLocation]] = {}
    for use in _USES:
        items = keys[use].value if use in keys else ()
        for item in items if isinstance(items, tuple) else ():
            if not isinstance(item.value, str):
                continue
            if item.value in first:
                before, place = first[item.value]
                where = f"twice in {use}" if before == use else f"in {before} and in {use}"
                hint = f"first at {place}"
                if before != use:
                    hint += "; a variable that the job needs and changes is in updates alone"
                problem = f"{_named(job)} names {item.value!r} {where}"
                yield Diagnostic(problem, item.place, "each variable once in a job", hint=hint)
            first.setdefault(item.value, (use, item.place))


def _notes(file: JobsFile, tree: SourceNode, folder: Path) -> Iterator[str]:
    """Yield notes on variables read before they are written, or named almost like another.

    A variable that is also the name of a file in `folder` comes from outside.
    """
    made = {name for job in file.jobs for name in (*job.writes, *job.updates)}
    suggestions = Suggestions(_MAX_SUGGESTIONS)
    before: set[str] = set()
    for number, job in enumerate(file.jobs):
        for index, name in enumerate(job.reads):
            place = tree.find("jobs", number, "reads", index).place
            if name not in made:
                hint = suggestions.nearest(name, made)
                if hint and not _is_file(folder, name):
                    yield f"{place}: no job writes {name!r}: {hint}"
            elif name not in before:
                yield (
                    f"{place}: {job.name!r} reads {name!r} before the jobs that write it, "
                    "which are below it"
                )
        before.update(job.writes, job.updates)


def _is_file(folder: Path, name: str) -> bool:
    try:
        return (folder / name).exists()
    except (OSError, ValueError):
        return False
