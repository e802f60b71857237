"""Finding where a run diverged: the same steps again, bit for bit, in checked mode."""

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
from mxrun.train.observer import EpochDone, RunStarted, StepDone
from mxrun.train.progress import Progress


class CheckedLoop(TrainingLoop):
    """A training loop that keeps a copy of all states before each step.

    After a step that leaves something that is no number it takes the step again, call by call, and
    raises Located. Everything else is as in the loop that diverged, so the bits are the same.
    """

    def step(self, step: int, parts: int) -> int:
        """One step, and all states looked at after it."""
        before = [array.copy() for array in self._states]
        try:
            valid = super().step(step, parts)
            self._look()
        except Diverged:
            for array, content in zip(self._states, before, strict=True):
                np.copyto(array, content)
            self._train.iterator.reset(self.progress.epoch, self.position[1])
            raise Located(self._locate(step, parts)) from None
        return valid

    def _locate(self, step: int, parts: int) -> Diagnostic:
        for total in self._sums:
            total.fill(0)
        for number in range(parts):
            batch = self.load(step, number)
            bad = bad_record(self._slots, batch)
            if bad is not None:
                return self._bad_record(step, *bad)
            found = first_non_finite(self._executor, TRAIN if number == parts - 1 else ACCUMULATE)
            if found is not None:
                return self._diverged(step, batch, found)
        return Diagnostic(f"training has diverged in step {step}: the loss is beyond float32")

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
            hint="nothing that is not finite was saved; lower the learning rate (train.optimizer), "
            "clip gradients (clip_global_norm) or look at these records",
        )


class NullObserver:
    """Tells nobody."""

    def run_started(self, event: RunStarted) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def step_done(self, event: StepDone) -> None:
        """Nothing."""

    def epoch_done(self, event: EpochDone) -> None:
        """Nothing."""


class NullCheckpointing:
    """Saves nothing: a replay changes no file."""

    def due_after_step(self, step: int) -> bool:
        """Never."""
        return False

    def after_step(self, progress: Progress, interrupted: bool) -> None:
        """Nothing."""

    def stop(self, progress: Progress) -> None:
        """Nothing: what is looked for is found first."""

    def fail(self, progress: Progress, error: RecordError) -> NoReturn:
        """The error alone."""
        raise error

    def after_epoch(self, done: EpochDone, progress: Progress, improved: bool) -> None:
        """Nothing."""
