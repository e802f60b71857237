"""Saving on the ranks whose state the first rank saves."""

from __future__ import annotations

from typing import NoReturn

from mxrun.base.errors import Stopped
from mxrun.io.loading.iterator import RecordError
from mxrun.train.observer import EpochDone, StepLogged
from mxrun.train.progress import Progress


class RankSaver:
    """Saver of a rank other than the first: it writes nothing and ends where the first one does."""

    def due_after_step(self, step: int) -> bool:
        """Return False."""
        return False

    def after_step(self, progress: Progress, interrupted: bool) -> None:
        """Raise Stopped after an interruption."""
        if interrupted and not progress.finished:
            self.stop(progress)

    def log_step(self, event: StepLogged) -> None:
        """Do nothing."""

    def stop(self, progress: Progress) -> NoReturn:
        """Raise Stopped."""
        raise Stopped(f"stopped after step {progress.step}, which the first rank has saved")

    def fail(self, progress: Progress, error: RecordError) -> NoReturn:
        """Raise the error."""
        raise error

    def after_epoch(self, done: EpochDone, progress: Progress, improved: bool) -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Return at once: nothing is being written."""

    def close(self) -> None:
        """Do nothing."""
