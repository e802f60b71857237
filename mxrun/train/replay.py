"""Bit-exact replay of a diverged run in checked mode, to locate the first non-finite value."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from mxrun.base.errors import Diagnostic
from mxrun.executor.checked import NonFinite, first_non_finite
from mxrun.graph.phases import ACCUMULATE, TRAIN
from mxrun.io.batch import Batch
from mxrun.io.iterator import RecordError
from mxrun.train.divergence import Diverged, Located, bad_record, records_text, written_text
from mxrun.train.loop import TrainingLoop
from mxrun.train.observer import EpochDone, RunStarted, StepDone, StepLogged
from mxrun.train.progress import Progress


class CheckedLoop(TrainingLoop):
    """Training loop that copies all states before each step.

    If a step writes NaN or infinity, the loop repeats it call by call and raises Located. Otherwise
    it equals the loop that diverged, so that the bits are the same.
    """

    def step(self, step: int, parts: int) -> int:
        """Take one step, then check all states."""
        self._states.load()
        arrays = self._states.arrays.values()
        before = [array.copy() for array in arrays]
        try:
            valid = super().step(step, parts)
            self._look()
        except Diverged:
            for array, content in zip(arrays, before, strict=True):
                np.copyto(array, content)
            self._states.store()
            self._train.iterator.reset(self.progress.epoch, self.position[1])
            raise Located(self._locate(step, parts)) from None
        return valid

    def _locate(self, step: int, parts: int) -> Diagnostic:
        self._clear_sums()
        for number in range(parts):
            batch = self.load(step, number)
            bad = bad_record(self._slots.arrays, batch)
            if bad is not None:
                return self._bad_record(step, *bad)
            found = first_non_finite(self._executor, TRAIN if number == parts - 1 else ACCUMULATE)
            if found is not None:
                return self._diverged(step, batch, found)
        return Diagnostic(f"training has diverged in step {step}: the loss exceeds float32")

    def _bad_record(self, step: int, name: str, record: int) -> Diagnostic:
        return Diagnostic(
            f"training has diverged in step {step}: record {record} of the training data is not "
            f"finite in {name!r}",
            hint="repair or remove the record",
        )

    def _diverged(self, step: int, batch: Batch, found: NonFinite) -> Diagnostic:
        return Diagnostic(
            f"training has diverged in step {step}, epoch {self.progress.epoch}: "
            f"{written_text(found)}",
            expected="finite numbers",
            got=f"a batch of the training records {records_text(batch)}",
            hint="no value that is not finite was saved; lower the learning rate "
            "(train.optimizer), clip gradients (clip_global_norm) or check these records",
        )


class NullObserver:
    """Observer that ignores all events."""

    def run_started(self, event: RunStarted) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""

    def step_done(self, event: StepDone) -> None:
        """Do nothing."""

    def step_logged(self, event: StepLogged) -> None:
        """Do nothing."""

    def epoch_done(self, event: EpochDone) -> None:
        """Do nothing."""


class NullCheckpointing:
    """Saver that writes nothing: a replay changes no file."""

    def due_after_step(self, step: int) -> bool:
        """Return False."""
        return False

    def after_step(self, progress: Progress, interrupted: bool) -> None:
        """Do nothing."""

    def log_step(self, event: StepLogged) -> None:
        """Do nothing."""

    def stop(self, progress: Progress) -> None:
        """Do nothing: the replay ends when it finds the non-finite value."""

    def fail(self, progress: Progress, error: RecordError) -> NoReturn:
        """Raise the error."""
        raise error

    def after_epoch(self, done: EpochDone, progress: Progress, improved: bool) -> None:
        """Do nothing."""
