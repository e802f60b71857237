"""Going on with a run: from which checkpoint, and whether it is still the same run."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.config import RunConfig, load_config
from mxrun.session.plugins import plugin_differences
from mxrun.session.run import Run
from mxrun.train.checkpoint import (
    Checkpoint,
    Manifest,
    PlanRecord,
    RunState,
    checkpoint_folder,
    read_manifest,
)
from mxrun.train.checkpoint_manager import newest_checkpoint, saved_steps
from mxrun.train.progress import Progress
from mxrun.train.run_directory import RunDirectory, run_path

_MAX_STEPS = 8


@dataclass(frozen=True)
class Beginning:
    """Where a run begins; nothing is changed until `commit`, which makes the folder that of the run
    and gives it.

    checkpoint: None at the first step. notes: what the user should know. finished: whether the run
    has ended there already, as the same run.
    """

    commit: Callable[[], RunDirectory]
    checkpoint: Checkpoint | None = None
    notes: tuple[str, ...] = ()
    finished: bool = False


def resume(run: Run, allow_changes: bool) -> Beginning:
    """Where the run of this name stands: the newest usable checkpoint of its folder.

    Raises UserError where config, data, plugins or plan are not those of the run, with every
    difference; with `allow_changes` that is only said.
    """
    config = run.built.config
    directory = RunDirectory.reopen(config.name)
    path = run_path(config.name)
    if directory is None:
        create = partial(RunDirectory.create, config.name, config.resolved(), overwrite=False)
        return Beginning(create, notes=(f"nothing is saved in {path}: starting afresh",))
    directory.clean_up()
    found = newest_checkpoint(path)
    checkpoint = found.checkpoint
    if checkpoint is None:
        # Whatever the config was (a killed process may have left it torn), nothing came of it.
        begin = partial(_go_on, directory, 1, config.resolved())
        return Beginning(begin, notes=(f"nothing is saved in {path}: starting afresh",))
    # The hint to use another checkpoint is followed already.
    notes = [f"{problem.problem}; an older checkpoint is used" for problem in found.damaged]
    saved = _saved_config(directory)
    if saved is None:
        notes.append(f"{directory.config_path} cannot be read and is written anew")
    differences = _differences(saved, run, checkpoint.manifest)
    if differences and not allow_changes:
        raise _changed(directory, differences)
    if differences:
        notes.append("this is another run than the one that was saved: " + "; ".join(differences))
        kept, checkpoint = checkpoint, run.with_states(checkpoint)
        if checkpoint is not kept:
            notes.append("the optimizer's states are not there: they begin anew")
    progress = checkpoint.manifest.progress
    text = config.resolved() if differences or saved is None else None
    commit = partial(_go_on, directory, progress.epoch, text)
    return Beginning(commit, checkpoint, tuple(notes), progress.finished and not differences)


def _go_on(directory: RunDirectory, epoch: int, config: str | None) -> RunDirectory:
    """Forget what was recorded from `epoch` on, and the end; the config is replaced if given."""
    if config is not None:
        directory.replace_config(config)
    directory.unfinish()
    directory.go_back(epoch)
    return directory


def _saved_config(directory: RunDirectory) -> RunConfig | None:
    """The config in a run's folder; None where it is damaged or gone."""
    try:
        return load_config(directory.config_path)
    except UserError:
        return None


def _differences(saved: RunConfig | None, run: Run, manifest: Manifest) -> list[str]:
    config = run.built.config
    found = [] if saved is None else _config_differences(saved.identity(), config.identity())
    if not found and manifest.config_sha256 != config.sha256():
        # The checkpoint may have come from another run, whatever lies beside it.
        found.append("the config is not the one of the checkpoint")
    return found + state_differences(manifest, run.state(Progress(), due=True))


def _changed(directory: RunDirectory, differences: Sequence[str]) -> UserError:
    return UserError(
        Diagnostic(
            f"{directory.path} holds a run of something else, so going on would give another "
            "result",
            expected="the config, data, plugins, team size and library that the run began with",
            got="\n    ".join(["", *differences]).rstrip(),
            hint="undo the change, or say --allow-changes: the result is then another run's",
        )
    )


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
        "micro-batches": (saved.plan.micro_batches, now.plan.micro_batches),
    }
    found = [f"{name}: {a} then, {b} now" for name, (a, b) in pairs.items() if a != b]
    for role in sorted({*saved.data, *now.data}):
        if saved.data.get(role) != now.data.get(role):
            found.append(f"data.{role}: its records are not the same")
    if saved.classes and now.classes and saved.classes != now.classes:
        then, classes = (listed(state.classes) for state in (saved, now))
        found.append(f"classes: {then} then, {classes} now")
    found += plugin_differences(saved.plugins, now.plugins)
    return found + _implementation_differences(saved.plan, now.plan)


def saved_plan(name: str) -> PlanRecord | None:
    """The plan of the run of this name, as its newest checkpoint that can be read says."""
    for step in reversed(saved_steps(run_path(name))):
        with suppress(UserError):
            return read_manifest(checkpoint_folder(run_path(name), step)).plan
    return None


def _implementation_differences(saved: PlanRecord, now: PlanRecord) -> list[str]:
    """Of steps that both plans have: what one has more, or less, changes no bit."""
    before, after = dict(saved.implementations), dict(now.implementations)
    for phase, chosen in saved.others.items():
        before |= {f"{name} in {phase}": chosen[name] for name in chosen}
        after |= {f"{name} in {phase}": each for name, each in now.others.get(phase, {}).items()}
    steps = [name for name in before if name in after and before[name] != after[name]]
    found = [f"{name}: {before[name]} then, {after[name]} now" for name in steps[:_MAX_STEPS]]
    if len(steps) > _MAX_STEPS:
        found.append(f"and {len(steps) - _MAX_STEPS} more steps")
    return found
