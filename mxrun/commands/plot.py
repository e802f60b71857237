"""Implementation of `plot`: data of a network's graph, or of the learning curves of runs."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.commands.ops import example
from mxrun.config.bundled import find_config, is_config
from mxrun.graph.symbol import load_json
from mxrun.inspection.network_description import (
    describe_network,
    describe_operator,
    describe_symbol,
)
from mxrun.operator.register import OPERATORS
from mxrun.preparation.planning import load
from mxrun.run.learning_curves import learning_curves
from mxrun.train.run_directory import find_run, is_run, run_of

Report = dict[str, Any]


def plot(targets: Sequence[str], settings: Sequence[str], runs: Path) -> Report:
    """Return the data to plot of runs, a config, a symbol or an operator; `kind` names the plot.

    targets: paths of runs' folders or names of runs in the folder `runs`; or a single operator,
    file of a symbol, or config, whose name goes before that of a run. Raises UserError if a target
    is none of these, or if `settings` are not supported for it.
    """
    folders = [_run(target, len(targets) == 1, runs) for target in targets]
    found = [folder for folder in folders if folder is not None]
    if len(found) == len(targets):
        if settings:
            hint = f"mxrun plot {found[0] / 'config.yaml'} draws the run's network"
            raise UserError(Diagnostic("a run's curves take no KEY=VALUE", hint=hint))
        curves = [learning_curves(folder) for folder in found]
        notes = [note for run in curves for note in run["notes"]]
        return {"kind": "curves", "notes": notes, "runs": curves}
    if len(targets) > 1:
        raise UserError(
            Diagnostic(
                f"{target} is not a run",
                expected="runs, whose curves are drawn together; or one config or operator",
                got=", ".join(targets),
                hint="`mxrun runs` lists runs",
            )
            for target, folder in zip(targets, folders, strict=True)
            if folder is None
        )
    (target,) = targets
    if target.endswith(".json") and os.path.isfile(target):
        return _symbol(Path(target), settings)
    if not is_config(target) and target in OPERATORS:
        return describe_operator(example(target, settings))
    report = describe_network(load(find_config(target), settings, needs_device=False))
    run = find_run(target, runs)
    if not os.path.exists(target) and is_run(run):
        note = f"{run} is a run of that name: mxrun plot {run} draws its learning curves"
        report["notes"] = [note]
    return report


def _symbol(path: Path, settings: Sequence[str]) -> Report:
    """Return the description of a network in a file of MXNet's JSON."""
    if settings:
        raise UserError(Diagnostic(f"the symbol in {path} takes no KEY=VALUE"))
    return describe_symbol(load_json(path.read_text(encoding="utf-8")), path.stem)


def _run(target: str, alone: bool, runs: Path) -> Path | None:
    """Return the folder of a run; None for anything else, and for a config's name if `alone`."""
    # A folder that is no run, such as one of images, does not hide the run of the same name.
    folder = find_run(target, runs)
    if alone and folder != Path(target) and is_config(target):
        return None
    return run_of(folder) if is_run(folder) else None
