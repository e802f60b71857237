"""Implementation of `runs`: lists the runs of a folder, or compares some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.options.runs import RunsOptions
from mxrun.run.config_differences import config_differences
from mxrun.run.saved_runs import SavedRun, read_run, saved_runs
from mxrun.train.run_directory import find_run, is_run, run_of

Report = dict[str, Any]


def list_runs(options: RunsOptions) -> Report:
    """Return the runs of a folder, the last written at the end.

    A metric sorts by its best value instead, the best run first and those without it at the end.
    Raises UserError if no run has it.
    """
    found, metric = saved_runs(options.runs), options.sort
    if metric is not None:
        found = _sorted(found, metric)
    return {"runs_dir": str(options.runs), "runs": [_described(run, metric) for run in found]}


def compare_runs(options: RunsOptions) -> Report:
    """Return the named runs and the config keys in which they differ.

    Raises UserError if a name is neither the path of a run nor a run in the folder of runs.
    """
    names, folder = options.names, options.runs
    paths = [find_run(name, folder) for name in names]
    missing = [name for name, path in zip(names, paths, strict=True) if not is_run(path)]
    if missing:
        known = [run.name for run in saved_runs(folder)]
        raise UserError(
            Diagnostic(
                f"{name} is not a run",
                expected=f"the name of a run in {folder}, or the path of a run",
                got=name,
                hint=nearest(name, known) or "`mxrun runs` lists runs",
            )
            for name in missing
        )
    found = [read_run(run_of(path)) for path in paths]
    differences = config_differences([run.config for run in found])
    return {
        "runs": [_described(run) for run in found],
        "differences": [{"key": key, "values": values} for key, values in differences.items()],
    }


def _sorted(runs: Sequence[SavedRun], metric: str) -> list[SavedRun]:
    measured = [(run.rank(best), run) for run in runs if (best := run.best_of(metric))]
    if not measured:
        known = sorted({name for run in runs for name in run.series})
        raise UserError(
            Diagnostic(
                f"no run has recorded {metric!r}",
                expected=f"one of {', '.join(known)}" if known else "runs with a finished epoch",
                got=metric,
                hint=nearest(metric, known),
            )
        )
    ranked = [run for _, run in sorted(measured, key=lambda each: each[0], reverse=True)]
    return [*ranked, *(run for run in runs if run.best_of(metric) is None)]


def _described(run: SavedRun, metric: str | None = None) -> Report:
    """Return a run as JSON; `best` is of `metric` if one is given."""
    best = run.best if metric is None else run.best_of(metric)
    return {
        "name": run.name,
        "run_dir": str(run.path),
        "state": run.state,
        "problem": run.problem or None,
        "written": datetime.fromtimestamp(run.written).astimezone().isoformat(timespec="seconds"),
        "epochs": run.epochs,
        "planned_epochs": run.planned_epochs,
        "best": None if best is None else asdict(best),
        "last": dict(run.last),
        "parameters": run.parameters,
        "arena_bytes": run.arena_bytes,
        "bytes": run.bytes,
    }
