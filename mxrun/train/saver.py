"""Saving during training: metrics after each epoch, and checkpoints according to the policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from mxrun.base.array_file import Arrays
from mxrun.base.errors import Diagnostic, Stopped, UserError
from mxrun.io.loading.iterator import RecordError
from mxrun.train.advice import ON_COMMAND_LINE, Advice
from mxrun.train.background import BackgroundWriter, Groups
from mxrun.train.checkpoint import MEASURED_FILE, RunState
from mxrun.train.checkpoint_manager import CheckpointManager
from mxrun.train.divergence import Diverged, is_finite
from mxrun.train.metric import why_undefined
from mxrun.train.observer import EpochDone, StepLogged
from mxrun.train.progress import Progress
from mxrun.train.run_directory import RunDirectory

# Function from the progress, and whether the policy requires the checkpoint, to the state of the
# run and the arrays of each file.
Snapshot = Callable[[Progress, bool], tuple[RunState, dict[str, Arrays]]]


class RunSaver:
    """Writes metrics and checkpoints into a run's folder.

    `saved` is the progress of the newest checkpoint there, if any; it is not written again. `note`
    reports metrics of an evaluation that are not finite, once for each metric. `advice` words what
    to do after an end. `writer`, if there is memory for one, writes checkpoints while the next
    steps run. Every method that saves first waits for a checkpoint that is still being written, and
    raises UserError if that failed; a failure is also raised after the step during which it came.
    """

    def __init__(
        self,
        directory: RunDirectory,
        checkpoints: CheckpointManager,
        snapshot: Snapshot,
        saved: Progress | None,
        note: Callable[[str], None],
        advice: Advice = ON_COMMAND_LINE,
        writer: BackgroundWriter | None = None,
    ) -> None:
        self._directory, self._checkpoints, self._snapshot = directory, checkpoints, snapshot
        self._saved, self._note, self._advice = saved, note, advice
        self._writer = writer
        self._reported: set[str] = set()

    def due_after_step(self, step: int) -> bool:
        """Return whether `after_step` is to be called in the middle of an epoch.

        The policy requires a checkpoint, or one could not be written.
        """
        return self._checkpoints.due_after_step(step) or self._has_failed()

    def _has_failed(self) -> bool:
        return self._writer is not None and self._writer.has_failed

    def after_step(self, progress: Progress, interrupted: bool) -> None:
        """Save if the policy or an interruption requires it.

        Raises Stopped after an interruption's checkpoint is written, Diverged, without saving, if a
        value is not finite, and UserError if the last checkpoint could not be written.
        """
        if progress.finished:
            return
        if self._has_failed():
            self.wait()
        if progress.batch and self._checkpoints.due_after_step(progress.step):
            self._save(progress, due=True)
        if interrupted:
            self.stop(progress)

    def log_step(self, event: StepLogged) -> None:
        """Record the metrics of a step."""
        self._directory.record_step(event)

    def stop(self, progress: Progress) -> None:
        """Save a checkpoint for an interruption and raise Stopped.

        In the middle of an evaluation, or while a batch is awaited, the checkpoints of the policy
        are not yet due.
        """
        self.save(progress)
        raise Stopped(
            f"stopped after step {progress.step} and saved in {self._directory.path}; "
            f"{self._advice.resume_action} continues"
        )

    def save(self, progress: Progress) -> None:
        """Save a checkpoint outside of the policy; raises Diverged, without saving, on non-finite
        values.
        """
        self._save(progress, due=False)

    def fail(self, progress: Progress, error: RecordError) -> NoReturn:
        """Save the state before the step or evaluation whose record is missing, then raise `error`.

        The error also says what was saved. Before the first step nothing is, unless the run began
        with parameters that its config does not name.
        """
        if progress.step == 0 and self._saved is None:
            nothing = Diagnostic(
                "training has ended before its first step: nothing was saved",
                hint="once the record can be read, the same command tries again",
            )
            raise UserError([*error.diagnostics, nothing]) from error
        try:
            self.save(progress)
        except UserError as unsaved:
            raise UserError([*error.diagnostics, *unsaved.diagnostics]) from error
        end = Diagnostic(
            f"training has ended after step {progress.step}, saved in {self._directory.path}",
            hint=f"once the record can be read, {self._advice.resume_action} continues; if files "
            f"were changed for that, add {self._advice.allow_changes}",
        )
        raise UserError([*error.diagnostics, end]) from error

    def after_epoch(self, done: EpochDone, progress: Progress, improved: bool) -> None:
        """Record the epoch; save if it was the best or the last, or if the policy requires it."""
        # On a full disk the earlier error is the one to raise.
        self.wait()
        self._directory.record(done)
        self._report_nonfinite(done)
        checkpoints = self._checkpoints
        due = checkpoints.due_after_epoch(done.epoch) or checkpoints.due_after_step(done.step)
        if due or improved or progress.finished:
            self._save(progress, due=True)

    def _report_nonfinite(self, done: EpochDone) -> None:
        bad = [
            name
            for name, figure in done.evaluation.items()
            if isinstance(figure, float)
            and not math.isfinite(figure)
            and name not in self._reported
        ]
        self._reported.update(bad)
        for name in bad:
            why = f": {why_undefined(name)}" if why_undefined(name) else ""
            value = done.evaluation[name]
            self._note(f"epoch {done.epoch}: {name} of the evaluation is {value}{why}")

    def wait(self) -> None:
        """Wait for a checkpoint that is being written; raises UserError if that failed."""
        if self._writer is not None:
            self._writer.wait()

    def close(self) -> None:
        """Wait for the checkpoint that is being written, before others may write the folder."""
        if self._writer is not None:
            self._writer.close()

    def _save(self, progress: Progress, due: bool) -> None:
        self.wait()
        if progress == self._saved:
            return
        state, groups = self._snapshot(progress, due)
        # Other checkpoints are the last act of the run: no steps follow.
        if self._writer is not None and due and not progress.finished:
            if not self._writer.take(groups):
                raise Diverged
            self._checkpoints.begin()
            self._writer.write(partial(self._write, state))
        else:
            learned = (arrays for file, arrays in groups.items() if file != MEASURED_FILE)
            if not all(is_finite(array) for arrays in learned for array in arrays.values()):
                raise Diverged
            self._write(state, groups)
        self._saved = progress

    def _write(self, state: RunState, groups: Groups) -> None:
        self._directory.flush_records()
        self._checkpoints.save(state, groups)
