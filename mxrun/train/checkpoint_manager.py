"""Which checkpoints a run writes, which it keeps, and which one it goes on from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mxrun.base.errors import Diagnostic, UserError
from mxrun.train.checkpoint import (
    CHECKPOINT,
    Arrays,
    Checkpoint,
    OtherFormat,
    RunState,
    discard_checkpoint,
    load_checkpoint,
    read_manifest,
    save_checkpoint,
)
from mxrun.train.progress import Progress

Unit = Literal["steps", "epochs", "minutes"]


@dataclass(frozen=True)
class Interval:
    """So many steps, epochs or minutes."""

    count: int
    unit: Unit


@dataclass(frozen=True)
class Policy:
    """When to save, how many to keep, and the metric whose best evaluation is kept as well."""

    every: Interval
    keep: int
    best: str | None = None


class CheckpointManager:
    """Saves, and after each save removes what the policy no longer keeps.

    Checkpoints that only an interruption asked for go once a due one is written, so that what is
    left in the end does not depend on where the run was interrupted.

    check: called before a checkpoint is written; raises where the folder is another one by now.
    """

    def __init__(
        self, folder: Path, policy: Policy, check: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._policy = policy
        self._check = check
        self._saved_at = time.monotonic()

    def due_after_step(self, step: int) -> bool:
        """Whether the policy wants a checkpoint after this step, in the middle of an epoch."""
        every = self._policy.every
        if every.unit == "steps":
            return step % every.count == 0
        elapsed = time.monotonic() - self._saved_at
        return every.unit == "minutes" and elapsed >= 60 * every.count

    def due_after_epoch(self, epoch: int) -> bool:
        """Whether the policy wants a checkpoint after this epoch."""
        return self._policy.every.unit == "epochs" and epoch % self._policy.every.count == 0

    def save(self, state: RunState, groups: dict[str, Arrays]) -> Path:
        """Write a checkpoint and remove what is not kept; raises UserError when it cannot."""
        self._check()
        path = save_checkpoint(self._folder, state, groups)
        self._saved_at = time.monotonic()
        if state.due:
            self.remove_others(state.progress)
        return path

    def remove_others(self, newest: Progress) -> None:
        """Remove what the policy no longer keeps beside a checkpoint that was due."""
        step = newest.step
        due, unreadable = {step}, set()
        for number in saved_steps(self._folder):
            try:
                manifest = read_manifest(self._folder / f"checkpoint-{number}")
            except UserError:
                # What cannot be judged, perhaps for a moment, is not removed.
                unreadable.add(number)
                continue
            if manifest.due and number < step:
                due.add(number)
        kept = unreadable | set(sorted(due)[-self._policy.keep :])
        if newest.best is not None:
            kept.add(newest.best.step)
        for number in saved_steps(self._folder):
            if number not in kept:
                discard_checkpoint(self._folder, number)


def saved_steps(folder: Path) -> list[int]:
    """The steps whose checkpoints lie in a run's folder, the newest last; none where there is no
    folder. Raises UserError where it cannot be read.
    """
    found = (CHECKPOINT.fullmatch(entry.name) for entry in _entries(folder))
    return sorted(int(match[1]) for match in found if match)


@dataclass(frozen=True)
class RestoredCheckpoint:
    """The newest usable checkpoint, and what was wrong with newer ones."""

    checkpoint: Checkpoint | None
    damaged: tuple[Diagnostic, ...]


def newest_checkpoint(folder: Path) -> RestoredCheckpoint:
    """The newest checkpoint that is whole.

    Raises UserError where there are checkpoints and none of them can be used.
    """
    damaged: list[Diagnostic] = []
    for step in reversed(saved_steps(folder)):
        try:
            return RestoredCheckpoint(
                load_checkpoint(folder / f"checkpoint-{step}"), tuple(damaged)
            )
        except OtherFormat:
            # Nor are older ones of this format.
            raise
        except UserError as error:
            damaged += error.diagnostics
    if damaged:
        raise UserError(damaged)
    return RestoredCheckpoint(None, ())


def _entries(folder: Path) -> Iterator[Path]:
    try:
        entries: Iterable[Path] = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UserError(
            f"cannot read {folder}: {(error.strerror or str(error)).lower()}"
        ) from error
    yield from entries
