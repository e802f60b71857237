"""What a run writes while it trains: metrics after each epoch, checkpoints as its policy says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn

from mxrun.base.errors import Diagnostic, Stopped, UserError
from mxrun.io.iterator import RecordError
from mxrun.train.checkpoint import MEASURED_FILE, Arrays, RunState
from mxrun.train.checkpoint_manager import CheckpointManager
from mxrun.train.divergence import Diverged, is_finite
from mxrun.train.observer import EpochDone
from mxrun.train.progress import Progress
from mxrun.train.run_directory import RunDirectory

# The state and the arrays of each file, at a moment of the run; whether the policy asked for it.
Snapshot = Callable[[Progress, bool], tuple[RunState, dict[str, Arrays]]]


class RunSaver:
    """Writes metrics and checkpoints into a run's folder.

    `saved` is the moment that the newest checkpoint there holds, if any: it is not written again.
    `note` tells the user what an evaluation has that is no number, once for each metric.
    """

    def __init__(
        self,
        directory: RunDirectory,
        keeper: CheckpointManager,
        snapshot: Snapshot,
        saved: Progress | None,
        note: Callable[[str], None],
    ) -> None:
        self._directory, self._keeper, self._snapshot = directory, keeper, snapshot
        self._saved, self._note = saved, note
        self._told: set[str] = set()

    def due_after_step(self, step: int) -> bool:
        """Whether the policy wants a checkpoint in the middle of an epoch."""
        return self._keeper.due_after_step(step)

    def after_step(self, progress: Progress, interrupted: bool) -> None:
        """Save where the policy or an interruption asks for it.

        Raises Stopped once an interruption's checkpoint is written, and Diverged instead of saving
        what is not finite.
        """
        if progress.finished:
            return
        if progress.batch and self._keeper.due_after_step(progress.step):
            self._save(progress, due=True)
        if interrupted:
            self.stop(progress)

    def stop(self, progress: Progress) -> None:
        """Save what only an interruption asks for, and raise Stopped.

        In the middle of an evaluation, and where a batch is awaited, that is all: what the policy
        asks for comes after it.
        """
        self.save(progress)
        raise Stopped(
            f"stopped after step {progress.step} and saved in {self._directory.path}; "
            "the same command with --resume goes on"
        )

    def save(self, progress: Progress) -> None:
        """Save what the policy does not ask for; raises Diverged instead where it is not finite."""
        self._save(progress, due=False)

    def fail(self, progress: Progress, error: RecordError) -> NoReturn:
        """Save the moment before the step or evaluation that a record is missing from, and raise
        `error` saying so. Before the first step there is nothing to save, and nothing is left.
        """
        if progress.step == 0:
            self._directory.withdraw()
            raise error
        try:
            self.save(progress)
        except UserError as unsaved:
            raise UserError([*error.diagnostics, *unsaved.diagnostics]) from error
        end = Diagnostic(
            f"training has ended after step {progress.step}, saved in {self._directory.path}",
            hint="once the record can be read the same command with --resume goes on; where files "
            "were changed for that, with --allow-changes as well",
        )
        raise UserError([*error.diagnostics, end]) from error

    def after_epoch(self, done: EpochDone, progress: Progress, improved: bool) -> None:
        """Record the epoch; save where it was the best or the last, or the policy asks for it."""
        self._directory.record(done)
        self._tell(done)
        keeper = self._keeper
        due = keeper.due_after_epoch(done.epoch) or keeper.due_after_step(done.step)
        if due or improved or progress.finished:
            self._save(progress, due=True)

    def _tell(self, done: EpochDone) -> None:
        bad = [
            name
            for name, figure in done.evaluation.items()
            if isinstance(figure, float) and not math.isfinite(figure) and name not in self._told
        ]
        self._told.update(bad)
        for name in bad:
            self._note(f"epoch {done.epoch}: {name} of the evaluation is {done.evaluation[name]}")

    def _save(self, progress: Progress, due: bool) -> None:
        if progress == self._saved:
            return
        state, groups = self._snapshot(progress, due)
        learned = (arrays for file, arrays in groups.items() if file != MEASURED_FILE)
        if not all(is_finite(array) for arrays in learned for array in arrays.values()):
            raise Diverged
        self._keeper.save(state, groups)
        self._saved = progress
