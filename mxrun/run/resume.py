"""Resuming a run: the checkpoint to resume from, and the check that the run is unchanged."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.near_names import listed
from mxrun.config import RunConfig, load_config
from mxrun.config.load import load_text
from mxrun.io.tables.encoding import encoding_differences
from mxrun.preparation.plugins import plugin_differences
from mxrun.run.config_differences import config_differences
from mxrun.run.run import Run
from mxrun.train.advice import Advice
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
from mxrun.train.run_directory import CONFIG_FILE, RunDirectory, is_without_progress

_MAX_STEPS = 8


@dataclass(frozen=True)
class RunStart:
    """Start of a run.

    commit: prepares the run's folder and returns it; nothing is changed before. checkpoint: None to
    start at the first step. notes: notes for the user. finished: whether the same run has already
    ended there.
    """

    commit: Callable[[], RunDirectory]
    checkpoint: Checkpoint | None = None
    notes: tuple[str, ...] = ()
    finished: bool = False


def resume(run: Run, path: Path, allow_changes: bool, advice: Advice) -> RunStart:
    """Return the start of a run from the newest usable checkpoint of its folder, `path`.

    Raises UserError with all differences if config, data, plugins or plan differ from the run's;
    with `allow_changes` they become notes.
    """
    options = run.built.options
    directory = RunDirectory.reopen(path)
    if directory is None:
        create = partial(RunDirectory.create, path, options.resolved(), overwrite=False)
        return RunStart(create, notes=(f"nothing is saved in {path}: starting afresh",))
    directory.clean_up()
    found = newest_checkpoint(path)
    checkpoint = found.checkpoint
    if checkpoint is None:
        # Any config may be replaced, even one torn by a killed process: it has no checkpoint.
        from_start = partial(_reopen_at, directory, Progress(), options.resolved())
        return RunStart(from_start, notes=(f"nothing is saved in {path}: starting afresh",))
    # The hint to use another checkpoint is already followed.
    notes = [f"{problem.problem}; an older checkpoint is used" for problem in found.damaged]
    saved = _saved_config(directory)
    if saved is None:
        notes.append(f"{directory.config_path} cannot be read and is rewritten")
    differences = _differences(saved, run, checkpoint.manifest)
    if differences and not allow_changes:
        raise _changed(directory, differences, advice)
    if differences:
        notes.append("this run differs from the saved one: " + "; ".join(differences))
        checkpoint, replaced = run.with_states(checkpoint)
        notes += replaced
    progress = checkpoint.manifest.progress
    is_same = saved is not None and saved.resolved() == options.resolved()
    finished = run.built.training.is_over(progress) and not differences
    config_text = None if is_same else options.resolved()
    commit = partial(_reopen_at, directory, progress, config_text, finished)
    return RunStart(commit, checkpoint, tuple(notes), finished)


def is_abandoned(path: Path) -> bool:
    """Return whether a folder holds only what a run leaves that ends before its first checkpoint.

    A config that a person wrote, or that cannot be read, is not such a rest.
    """
    if not (path / CONFIG_FILE).is_file() or not is_without_progress(path):
        return False
    config = _saved_config(RunDirectory(path))
    return config is not None and config.resolved().encode() == (path / CONFIG_FILE).read_bytes()


def _reopen_at(
    directory: RunDirectory, progress: Progress, config: str | None, finished: bool = False
) -> RunDirectory:
    """Remove the records after `progress` and the end mark; replace the config if one is given.

    finished: whether the run ends at `progress`. In the middle of an epoch, where max_steps ends
    it, the record of the epoch then belongs to it.
    """
    if config is not None:
        directory.replace_config(config)
    directory.unfinish()
    epoch = progress.epoch + 1 if finished and progress.batch else progress.epoch
    directory.remove_records_from(epoch, progress.step)
    return directory


def _saved_config(directory: RunDirectory) -> RunConfig | None:
    """Return the config in a run's folder; None if it is damaged or missing."""
    try:
        return load_config(directory.config_path)
    except UserError:
        return None


def _differences(saved: RunConfig | None, run: Run, manifest: Manifest) -> list[str]:
    options, without = run.built.options, run.keys_of_length
    found = []
    if saved is not None:
        found = identity_differences(saved.identity(without), options.identity(without))
        lengths = [(each.train.epochs, each.train.max_steps) for each in (saved, options)]
        if not without and lengths[0] != lengths[1]:
            schedule = options.train.schedule.kind
            found.append(
                f"train.schedule: {schedule} spreads over the entire run, so that every step of a "
                "run of another length has another learning rate"
            )
    if not found and manifest.config_sha256 != options.sha256(without):
        # The checkpoint may have been copied from another run.
        found.append("the config is not the one of the checkpoint")
    step = manifest.progress.step
    trained = manifest.progress.epoch - (manifest.progress.batch == 0)
    limits = (
        ("epochs", f"has reached epoch {trained}", trained, options.train.epochs),
        ("max_steps", f"has reached step {step}", step, options.train.max_steps),
    )
    found += [
        f"train.{key}: {limit} now, but the saved run {reached}"
        for key, reached, taken, limit in limits
        if limit is not None and taken > limit
    ]
    states = state_differences(manifest, run.state(Progress(), due=True))
    # That of the seed is told by the config as well.
    named = {each.partition(":")[0] for each in states}
    return [each for each in found if each.partition(":")[0] not in named] + states


def _changed(directory: RunDirectory, differences: Sequence[str], advice: Advice) -> UserError:
    return UserError(
        Diagnostic(
            f"{directory.path} holds a run with other settings, so resuming would give another "
            "result",
            expected="the config, data, plugins, device and library that the run began with",
            got="\n    ".join(["", *differences]).rstrip(),
            hint=f"undo the change, or use {advice.allow_changes}: the result is then that of "
            "another run",
        )
    )


# Words for the two sides of a difference.
THEN_AND_NOW = ("then", "now")


def identity_differences(saved: str, now: str, words: tuple[str, str] = THEN_AND_NOW) -> list[str]:
    """Return the keys in which two configs differ, with both values; else the differing lines.

    saved, now: as `RunOptions.identity` returns them. words: for the two sides.
    """
    if saved == now:
        return []
    place, diagnostics = SourceLocation("<config>", 1, 1), Diagnostics()
    configs = [load_text(text, place, diagnostics).plain() for text in (saved, now)]
    found = [
        _difference(key, then, value, words)
        for key, (then, value) in config_differences(configs).items()
    ]
    if found:
        return found
    # Such as the order of layers, which are compared by their names.
    lines = difflib.unified_diff(saved.splitlines(), now.splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _difference(name: str, one: object, other: object, words: tuple[str, str]) -> str:
    texts = ["none" if value in (None, "") else f"{value}" for value in (one, other)]
    return f"{name}: {texts[0]} {words[0]}, {texts[1]} {words[1]}"


def state_differences(
    saved: RunState, now: RunState, words: tuple[str, str] = THEN_AND_NOW
) -> list[str]:
    """Return the differences that change a run's bits, one line each; words: for the two sides."""
    pairs = {
        "seed": (saved.seed, now.seed),
        "device": (saved.plan.device, now.plan.device),
        "kernel library": (saved.plan.library, now.plan.library),
        "contexts": (saved.plan.contexts, now.plan.contexts),
        "batch parts": (saved.plan.batch_parts, now.plan.batch_parts),
        "micro-batches": (saved.plan.micro_batches, now.plan.micro_batches),
    }
    found = [_difference(name, a, b, words) for name, (a, b) in pairs.items() if a != b]
    for role in sorted({*saved.data, *now.data}):
        if saved.data.get(role) != now.data.get(role):
            found.append(f"data.{role}: its records have changed")
    if saved.classes and now.classes and saved.classes != now.classes:
        then, classes = (listed(state.classes) for state in (saved, now))
        found.append(f"classes: {then} then, {classes} now")
    found += encoding_differences(saved.encoding, now.encoding)
    if saved.vocabulary != now.vocabulary:
        found.append("vocabulary: the tokens of the text have changed")
    found += plugin_differences(saved.plugins, now.plugins)
    before, after = saved.plan.kernel_plans, now.plan.kernel_plans
    common = before.keys() & after.keys()
    if changed := [key for key in common if before[key] != after[key]]:
        found.append(f"kernel library: {len(changed)} of {len(common)} plans have another text now")
    return found + _implementation_differences(saved.plan, now.plan)


def saved_manifest(path: Path) -> Manifest | None:
    """Return the newest readable manifest among a run's checkpoints, or None."""
    for step in reversed(saved_steps(path)):
        with suppress(UserError):
            return read_manifest(checkpoint_folder(path, step))
    return None


def _implementation_differences(saved: PlanRecord, now: PlanRecord) -> list[str]:
    """Return differing implementations of steps in both plans; other steps change no bit."""
    before, after = dict(saved.implementations), dict(now.implementations)
    for phase, selected in saved.others.items():
        before |= {f"{name} in {phase}": selected[name] for name in selected}
        after |= {f"{name} in {phase}": each for name, each in now.others.get(phase, {}).items()}
    steps = [name for name in before if name in after and before[name] != after[name]]
    found = [f"{name}: {before[name]} then, {after[name]} now" for name in steps[:_MAX_STEPS]]
    if len(steps) > _MAX_STEPS:
        found.append(f"and {len(steps) - _MAX_STEPS} more steps")
    return found
