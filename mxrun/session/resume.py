"""Going on with a run: from which checkpoint, and whether it is still the same run."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from mxrun.base.errors import Diagnostic, UserError
from mxrun.config import load_config
from mxrun.session.run import Run
from mxrun.train.checkpoint import Checkpoint, Manifest, RunState
from mxrun.train.keeper import newest_checkpoint
from mxrun.train.progress import Progress
from mxrun.train.run_directory import RunDirectory

_MOST_STEPS = 8


@dataclass(frozen=True)
class Resumed:
    """The folder of a run, the checkpoint to go on from, and what the user should know."""

    directory: RunDirectory
    checkpoint: Checkpoint | None
    notes: tuple[str, ...]


def resume(run: Run, allow_changes: bool) -> Resumed:
    """Find the newest usable checkpoint of the run's folder.

    Raises UserError where config, data or plan are not those of the run, with every difference;
    with `allow_changes` that is only said.
    """
    config = run.built.config
    directory = RunDirectory.reopen(config.name)
    if directory is None:
        created = RunDirectory.create(config.name, config.resolved(), overwrite=False)
        return Resumed(created, None, (f"nothing is saved in {created.path}: starting afresh",))
    directory.clean_up()
    found = newest_checkpoint(directory.path)
    checkpoint = found.checkpoint
    if checkpoint is None:
        # Whatever the config was (a killed process may have left it torn), nothing came of it.
        directory.replace_config(config.resolved())
        directory.go_back(1)
        note = f"nothing is saved in {directory.path}: starting afresh"
        return Resumed(directory, None, (note,))
    notes = [f"{problem}; an older checkpoint is used" for problem in found.damaged]
    saved = load_config(directory.config_path)
    differences = _config_differences(saved.identity(), config.identity())
    differences += state_differences(checkpoint.manifest, run.state(Progress(), due=True))
    if differences and not allow_changes:
        raise UserError(
            Diagnostic(
                f"{directory.path} holds a run of something else, so going on would give another "
                "result",
                expected="the config, data, team size and library that the run began with",
                got="\n    ".join(["", *differences]).rstrip(),
                hint="undo the change, or say --allow-changes: the result is then another run's",
            )
        )
    if differences:
        notes.append("this is another run than the one that was saved: " + "; ".join(differences))
        directory.replace_config(config.resolved())
    directory.go_back(checkpoint.manifest.progress.epoch)
    return Resumed(directory, checkpoint, tuple(notes))


def _config_differences(saved: str, now: str) -> list[str]:
    """The lines in which two configs differ."""
    lines = difflib.unified_diff(saved.splitlines(), now.splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def state_differences(saved: Manifest, now: RunState) -> list[str]:
    """What decides a run's bits and differs, one line each."""
    pairs = {
        "seed": (saved.seed, now.seed),
        "threads": (saved.plan.threads, now.plan.threads),
        "kernel library": (saved.plan.library, now.plan.library),
    }
    found = [f"{name}: {a} then, {b} now" for name, (a, b) in pairs.items() if a != b]
    for role in sorted({*saved.data, *now.data}):
        if saved.data.get(role) != now.data.get(role):
            found.append(f"data.{role}: its records are not the same")
    before, after = saved.plan.implementations, now.plan.implementations
    steps = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    found += [
        f"{name}: {before.get(name, 'absent')} then, {after.get(name, 'absent')} now"
        for name in steps[:_MOST_STEPS]
    ]
    if len(steps) > _MOST_STEPS:
        found.append(f"and {len(steps) - _MOST_STEPS} more steps")
    return found
