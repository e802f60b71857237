"""Bit-exact replay of a diverged run in checked mode, to locate the first non-finite value."""

from __future__ import annotations

from typing import NoReturn

from mxrun.base.errors import Diagnostic
from mxrun.executor.checked import NonFinite, first_non_finite
from mxrun.graph.phases import ACCUMULATE, TRAIN, UPDATE
from mxrun.io.loading.batch import Batch
from mxrun.io.loading.iterator import RecordError
from mxrun.train.divergence import Diverged, Located, bad_record, records_text, written_text
from mxrun.train.host_arrays import LEARNED, copy_pinned, pinned
from mxrun.train.loop import TrainingLoop
from mxrun.train.observer import EpochDone, RunStarted, StepDone, StepLogged
from mxrun.train.progress import Progress
from mxrun.train.replica import Replica


class CheckedLoop(TrainingLoop):
    """Training loop that copies all states before each step.

    If a step writes NaN or infinity, the loop repeats it call by call and raises Located. Otherwise
    it equals the loop that diverged, so that the bits are the same.
    """

    def step(self, step: int, parts: int) -> int:
        """Take one step, then check all states."""
        first, *others = (replica.executor for replica in self._replicas)
        before = {name: first.tensor(name).read() for name in pinned(first, *LEARNED)}
        try:
            valid = super().step(step, parts)
            self._look()
        except Diverged:
            for name, content in before.items():
                first.tensor(name).write(content)
            copy_pinned(first, others, *LEARNED)
            self._train.iterator.reset(self.progress.epoch, self.position[1])
            raise Located(self._locate(step, parts)) from None
        return valid

    def _locate(self, step: int, parts: int) -> Diagnostic:
        count = len(self._replicas)
        for replica in self._replicas:
            replica.clear_sums()
        for first in range(0, parts, count):
            self.load(step, first)
            self._runner.wait()
            is_last = first + count == parts
            for replica in self._replicas:
                programs = replica.executor.programs
                program = TRAIN if is_last or ACCUMULATE not in programs else ACCUMULATE
                problem = self._problem_of(replica, step, program)
                if problem is not None:
                    return problem
            self._runner.exchange(is_last)
        for replica in self._replicas:
            if UPDATE in replica.executor.programs:
                problem = self._problem_of(replica, step, UPDATE)
                if problem is not None:
                    return problem
        return Diagnostic(f"training has diverged in step {step}: the loss exceeds float32")

    def _problem_of(self, replica: Replica, step: int, program: str) -> Diagnostic | None:
        """Run a program call by call and return what is not finite in it or its batch."""
        assert replica.batch is not None
        bad = bad_record(replica.slots.arrays, replica.batch)
        if bad is not None:
            return self._bad_record(step, *bad)
        found = first_non_finite(replica.executor, replica.program(program))
        return None if found is None else self._diverged(step, replica.batch, found)

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
