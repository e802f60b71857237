"""Checkpoint policy: when to save, which checkpoints to retain, and which one to resume from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from mxrun.base.array_file import Arrays
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.interval import Interval
from mxrun.train.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    OtherFormat,
    RunState,
    discard_checkpoint,
    load_checkpoint,
    read_manifest,
    save_checkpoint,
)
from mxrun.train.progress import Progress

# A run with very short steps might replace its checkpoints faster than they can be read.
_MAX_ATTEMPTS = 10


@dataclass(frozen=True)
class Policy:
    """Interval between checkpoints, number retained, and the metric that selects the best one."""

    every: Interval
    keep: int
    best: str | None = None


class CheckpointManager:
    """Saves checkpoints, and after each save removes those that the policy does not retain.

    Checkpoints written only because of an interruption are removed once a due one is written, so
    that the final set does not depend on where the run was interrupted.

    check: called before a checkpoint is written; raises if the folder has been replaced.
    """

    def __init__(
        self, folder: Path, policy: Policy, check: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._policy = policy
        self._check = check
        self._saved_at = time.monotonic()

    def due_after_step(self, step: int) -> bool:
        """Return whether the policy requires a checkpoint after this step, within an epoch."""
        every = self._policy.every
        if every.unit == "steps":
            return step % every.count == 0
        elapsed = time.monotonic() - self._saved_at
        return every.unit == "minutes" and elapsed >= 60 * every.count

    def due_after_epoch(self, epoch: int) -> bool:
        """Return whether the policy requires a checkpoint after this epoch."""
        return self._policy.every.unit == "epochs" and epoch % self._policy.every.count == 0

    def begin(self) -> None:
        """Begin the interval until the next checkpoint, while one is written.

        Raises what `check` raises.
        """
        self._check()
        self._saved_at = time.monotonic()

    def save(self, state: RunState, groups: Mapping[str, Arrays]) -> Path:
        """Write a checkpoint and remove those not retained; raises UserError if it fails."""
        self._check()
        path = save_checkpoint(self._folder, state, groups)
        self._saved_at = time.monotonic()
        if state.due:
            self.remove_others(state.progress)
        return path

    def remove_others(self, newest: Progress) -> None:
        """Remove the checkpoints that the policy does not retain, given a due one at `newest`."""
        step = newest.step
        due, unreadable = {step}, set()
        for number in saved_steps(self._folder):
            try:
                manifest = read_manifest(self._folder / f"checkpoint-{number}")
            except UserError:
                # A checkpoint that cannot be read, perhaps only for a moment, is not removed.
                unreadable.add(number)
                continue
            if manifest.due and number < step:
                due.add(number)
        retained = unreadable | set(sorted(due)[-self._policy.keep :])
        if newest.best is not None:
            retained.add(newest.best.step)
        for number in saved_steps(self._folder):
            if number not in retained:
                discard_checkpoint(self._folder, number)


def saved_steps(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in a run's folder, ascending; empty without a folder.

    Raises UserError if the folder cannot be read.
    """
    found = (CHECKPOINT.fullmatch(entry.name) for entry in _entries(folder))
    return sorted(int(match[1]) for match in found if match)


@dataclass(frozen=True)
class RestoredCheckpoint:
    """Newest usable checkpoint, and the problems of newer ones."""

    checkpoint: Checkpoint | None
    damaged: tuple[Diagnostic, ...]


def newest_checkpoint(folder: Path) -> RestoredCheckpoint:
    """Return the newest checkpoint that is complete and undamaged.

    A run that goes on meanwhile may remove checkpoints that are being read: then its later ones are
    looked for. Raises UserError if there are checkpoints but none can be used.
    """
    for _ in range(_MAX_ATTEMPTS - 1):
        steps = saved_steps(folder)
        try:
            return _newest_of(folder, steps)
        except UserError:
            if saved_steps(folder) == steps:
                raise
    return _newest_of(folder, saved_steps(folder))


def _newest_of(folder: Path, steps: Sequence[int]) -> RestoredCheckpoint:
    """Return the newest usable checkpoint of these steps; UserError as of `newest_checkpoint`."""
    damaged: list[Diagnostic] = []
    for step in reversed(steps):
        try:
            return RestoredCheckpoint(
                load_checkpoint(folder / f"checkpoint-{step}"), tuple(damaged)
            )
        except OtherFormat:
            # Older checkpoints do not have this version's format either.
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
