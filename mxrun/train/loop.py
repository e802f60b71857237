"""Training loop: it loads batches into the plan's slots, runs the program and updates metrics."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.executor.executor import Executor
from mxrun.executor.switch_interval import short_switch_interval
from mxrun.graph.graph import STATES
from mxrun.graph.lower import UNTRAINED
from mxrun.graph.phases import ACCUMULATE, EVALUATE, TRAIN
from mxrun.io.loading.iterator import DataIterator, RecordError
from mxrun.runtime.engine.interface import Engine, Variable
from mxrun.train.agreement import Agreement
from mxrun.train.data_parallel import ContextGroup, DataParallel, SingleContext, StepRunner
from mxrun.train.divergence import (
    Diverged,
    EvaluationDiverged,
    located_in_evaluation,
)
from mxrun.train.finite import FiniteCheck
from mxrun.train.host_arrays import LEARNED, HostArrays, pinned
from mxrun.train.interruption import WaitEnded
from mxrun.train.learning_rate import LearningRateTimeline
from mxrun.train.measure import LossTensors, Phase
from mxrun.train.metric_kind import Figure
from mxrun.train.observer import EpochDone, Observer, StepDone, StepLogged
from mxrun.train.progress import Progress
from mxrun.train.replica import BucketLosses, Replica
from mxrun.train.training_parameters import TrainingParameters
from mxrun.train.undo import StepUndo

_REPORT_INTERVAL_S = 0.1
# Steps between two checks of all parameters and states for NaN and infinity. These persist, so that
# a later check finds them too; one check costs a pass over all of them.
_LOOK_INTERVAL = 100
# Number of steps whose rates are computed at once, and initial capacity for step times.
_RATES = 1024
_TIMES = 1 << 16


class Saver(Protocol):
    """Interface for writing checkpoints."""

    def due_after_step(self, step: int) -> bool:
        """Return whether `after_step` has something to do in the middle of an epoch."""

    def after_step(self, progress: Progress, interrupted: bool) -> None:
        """Save between two steps of an epoch if due; raises Stopped after saving on an
        interruption, and UserError if an earlier checkpoint could not be written.
        """

    def log_step(self, event: StepLogged) -> None:
        """Record the metrics of a step."""

    def stop(self, progress: Progress) -> None:
        """Save on an interruption within an evaluation or a wait, then raise Stopped."""

    def fail(self, progress: Progress, error: RecordError) -> NoReturn:
        """Save after a record that cannot be read, then raise UserError."""

    def after_epoch(self, done: EpochDone, progress: Progress, improved: bool) -> None:
        """Save after an epoch's evaluation; `improved` if it was the best."""


@dataclass(frozen=True)
class LoopResult:
    """Result of a run: times in ms of this process's steps, and the moment of the first.

    waited_seconds: time that the steps waited for data. ended: why the run ended.
    """

    progress: Progress
    step_ms: npt.NDArray[np.float64]
    first_step_at: float
    waited_seconds: float
    stopped_early: bool
    ended: str


class TrainingLoop:
    """Runs epochs of training, each followed by an evaluation in the same arena."""

    def __init__(
        self,
        executor: Executor,
        losses: Sequence[LossTensors],
        train: Phase,
        evaluation: Phase | None,
        pace: TrainingParameters,
        observer: Observer,
        engine: Engine,
        run: Callable[[str], None] | None = None,
        group: ContextGroup | None = None,
        agreement: Agreement | None = None,
        buckets: BucketLosses | None = None,
    ) -> None:
        """`run` runs a program instead of the executor, to observe it. `group`: all contexts of a
        run on several, of which the executor is the first, or that of batch parts, about which
        ranks agree by `agreement`. `buckets`: the losses of sequences that are shorter than the
        longest.
        """
        self._pace, self._observer = pace, observer
        self._train, self._evaluation = train, evaluation
        first = Replica(executor, losses, train, evaluation, buckets=buckets)
        self._replicas = [first]
        self._runner: StepRunner
        if group is None:
            self._runner = SingleContext(engine, first, run or executor.run)
        elif agreement is not None:
            # Imported on demand: other runs need nothing of the stores.
            from mxrun.train.batch_parts import BatchParts

            self._runner = BatchParts(engine, first, group, agreement)
        else:
            self._replicas += (
                Replica(each, losses, train, evaluation, first) for each in group.executors[1:]
            )
            self._runner = DataParallel(engine, self._replicas, group)
        self._shared = agreement if agreement and agreement.ranks.size > 1 else None
        self.measure, self._evaluation_measure = first.measure, first.evaluation_measure
        total_steps = self.total_steps()
        self._rates = LearningRateTimeline(
            pace.optimizer, pace.schedule, total_steps, self.steps_of(1)
        )
        self._chunk = np.zeros((_RATES, 3), np.float32)
        self._is_finite = FiniteCheck(executor, pinned(executor, *LEARNED))
        states = HostArrays(executor, pinned(executor, *STATES))
        self._partial = StepUndo(states, {**self.measure.state(), **self._runner.carried})
        self.progress = Progress()
        # Steps taken and batches of the current epoch; `progress` is updated only at an epoch's
        # end.
        self.position = 0, 0
        self._records, self._seconds = 0, 0.0
        # Batches may have been read before the run, to check them.
        self._waited_before = self._train.iterator.waited_seconds
        self._reported = 0.0
        self._step_ms = np.zeros(min(total_steps, _TIMES))
        self._step_count = 0
        self._first_step_at = math.nan

    @property
    def saved(self) -> Sequence[Variable]:
        """Variables of what a checkpoint contains."""
        return self._runner.saved

    @property
    def evaluation_numbers(self) -> tuple[str, ...]:
        """Names of the numbers that an evaluation gives; empty if there is none."""
        return () if self._evaluation_measure is None else self._evaluation_measure.numbers

    def steps_of(self, epoch: int) -> int:
        """Return the number of training steps of an epoch."""
        return -(-self._train.iterator.batches(epoch) // self._pace.accumulate)

    def total_steps(self) -> int:
        """Return the number of training steps of the complete run, without early stopping."""
        epochs = self._pace.epochs
        period = min(self._train.iterator.period, epochs)
        steps = [self.steps_of(epoch) for epoch in range(1, period + 1)]
        total = epochs // period * sum(steps) + sum(steps[: epochs % period])
        return total if self._pace.max_steps is None else min(total, self._pace.max_steps)

    def total_epochs(self) -> int:
        """Return the number of epochs that the complete run begins, without early stopping."""
        if self._pace.max_steps is None:
            return self._pace.epochs
        epoch, steps, total = 0, 0, self.total_steps()
        while steps < total:
            epoch += 1
            steps += self.steps_of(epoch)
        return epoch

    def _with_end(self, progress: Progress) -> Progress:
        """Return the progress with `finished` set if the run ends there."""
        return progress.with_(finished=self._pace.is_over(progress))

    def run(self, saver: Saver, interrupted: Callable[[], bool]) -> LoopResult:
        """Train from `progress` to the end, with a short switch interval for the interpreter lock.

        Raises Diverged on NaN or infinity, and EvaluationDiverged if only the loss of an evaluation
        is not finite; propagates errors from `saver`.
        """
        if self._shared is not None:
            self._shared.due = lambda: saver.due_after_step(self.position[0] + 1)
        for replica in self._replicas:
            replica.begin()
        # A run that is resumed with more epochs than before is no longer finished.
        self.progress = self._with_end(self.progress)
        self._note_long_warmup()
        with short_switch_interval:
            while not self.progress.finished:
                self._epoch(saver, interrupted)
        return LoopResult(
            self.progress,
            self._step_ms[: self._step_count],
            self._first_step_at,
            self._waited(),
            stopped_early=self._pace.watch.is_over(self.progress),
            ended=self._pace.end_text(self.progress),
        )

    def _note_long_warmup(self) -> None:
        """Notify if the warm-up, such as one that a shorter run inherits, takes most of the run."""
        warmup, total = self._pace.schedule.warmup_steps, self.total_steps()
        if 2 * warmup > total:
            takes = f"takes {warmup} of" if warmup < total else f"of {warmup} steps covers all"
            self._observer.note(
                f"train.schedule: the warm-up {takes} the run's {total} steps: shorten warmup_steps"
            )

    def _epoch(self, saver: Saver, interrupted: Callable[[], bool]) -> None:
        records, seconds, started = self._records, self._seconds, time.perf_counter()
        waited = self._waited()
        self._train_epoch(saver, interrupted)
        self._look()
        train = self.measure.values()
        evaluation = self._evaluate(saver, interrupted)
        progress, improved = self._evaluated(train, evaluation)
        done = EpochDone(
            epoch=self.progress.epoch,
            step=self.progress.step,
            learning_rate=self._rate(),
            train=train,
            evaluation=evaluation,
            records=self._records - records,
            train_seconds=self._seconds - seconds,
            seconds=time.perf_counter() - started,
            waited_seconds=self._waited() - waited,
        )
        self.progress = self._with_end(progress)
        if self.progress.batch == 0:
            self.measure.reset()
        self._runner.gather_states()
        for replica in self._replicas:
            for note in replica.executor.device.take_notes():
                self._observer.note(note)
        saver.after_epoch(done, self.progress, improved)
        self._observer.epoch_done(done)
        saver.after_step(self.progress, interrupted())

    def _evaluated(
        self, train: Mapping[str, Figure], evaluation: Mapping[str, Figure]
    ) -> tuple[Progress, bool]:
        """Return the progress after an evaluation, and whether it was the best.

        In the middle of an epoch, where max_steps ends the run, only the figures are saved: a run
        that goes on with more steps must continue as if it had not been evaluated there.
        """
        progress, watch = self.progress, self._pace.watch
        if progress.batch < self._train.iterator.batches(progress.epoch):
            figures = watch.recorded(evaluation)
            return progress.with_(evaluation=figures, finished=True), False
        return watch.after_epoch(progress, train, evaluation)

    def _train_epoch(self, saver: Saver, interrupted: Callable[[], bool]) -> None:
        """Train the remaining batches of the current epoch."""
        progress, iterator = self.progress, self._train.iterator
        batches = iterator.batches(progress.epoch)
        step, batch = self.position = progress.step, progress.batch
        try:
            iterator.reset(progress.epoch, batch)
        except WaitEnded as error:
            self._give_up(saver, progress, error)
        if batch == 0:
            self.measure.reset()
            self._clear_carried(TRAIN)
        steps = -(-(batches - batch) // self._pace.accumulate)
        if self._pace.max_steps is not None:
            steps = min(steps, max(0, self._pace.max_steps - step))
        self._reserve(steps)
        log_every = self._pace.log_every or 0
        steps_done, clock = 0, time.perf_counter
        while steps_done < steps:
            started = clock()
            micro_batches = min(self._pace.accumulate, batches - batch)
            parts = micro_batches * self._train.iterator.parts
            at = steps_done % _RATES
            if at == 0:
                self._fill_chunk(step, min(_RATES, steps - steps_done))
            for replica in self._replicas:
                replica.set_rates(self._chunk[at])
            steps_done += 1
            try:
                valid = self.step(step + 1, parts)
            except (RecordError, WaitEnded) as error:
                self._give_up(saver, progress.with_(step=step, batch=batch), error)
            finished = clock()
            step, batch = step + 1, batch + micro_batches
            self.position = step, batch
            self._step_ms[self._step_count] = (finished - started) * 1e3
            self._step_count += 1
            self._seconds += finished - started
            self._records += valid
            if self._step_count == 1:
                self._first_step_at = time.monotonic()
            if step % _LOOK_INTERVAL == 0:
                self._look()
            if log_every and step % log_every == 0:
                rate, values = float(self._chunk[at, 0]), self.measure.values()
                event = StepLogged(progress.epoch, step, rate, values)
                saver.log_step(event)
                # The line of the epoch, which follows, has the figures of its last step.
                if steps_done < steps:
                    self._observer.step_logged(event)
            if finished - self._reported >= _REPORT_INTERVAL_S:
                self._reported = finished
                self._report()
            if steps_done < steps and (self._is_due(saver, step) or interrupted()):
                self._runner.gather_states()
                saver.after_step(progress.with_(step=step, batch=batch), interrupted())
        self.progress = progress.with_(step=step, batch=batch)

    def _is_due(self, saver: Saver, step: int) -> bool:
        """Return whether the saver has something to do after a step; that of rank 0, of several."""
        return saver.due_after_step(step) if self._shared is None else self._shared.is_due

    def _reserve(self, steps: int) -> None:
        """Allocate memory for the times of `steps` more steps."""
        if self._step_count + steps > len(self._step_ms):
            grown = np.zeros(max(self._step_count + steps, 2 * len(self._step_ms)))
            grown[: self._step_count] = self._step_ms[: self._step_count]
            self._step_ms = grown

    def _fill_chunk(self, step: int, count: int) -> None:
        """Compute the values of the schedule's tensor for the `count` steps after `step`."""
        plateau = self.progress.plateau
        for index in range(count):
            self._chunk[index] = self._rates.at(step + 1 + index, plateau)

    def _waited(self) -> float:
        """Return the time that the steps so far have waited for data."""
        return self._train.iterator.waited_seconds - self._waited_before

    def _rate(self) -> float:
        """Return the learning rate of the last step, which another process may have taken."""
        return float(np.float32(self._rates.at(self.progress.step, self.progress.plateau)[0]))

    def step(self, step: int, parts: int) -> int:
        """Take step number `step` over the iterator's next `parts`; return the number of records.

        A part is a batch or, with micro-batches, a part of one. Raises Diverged if a loss is not
        finite. On RecordError and WaitEnded the saved state is as it was before the step.
        """
        valid, count = 0, len(self._replicas)
        for replica in self._replicas:
            replica.clear_sums()
        may_fail = self._train.iterator.reads_records and (parts > 1 or self._shared is not None)
        if may_fail:
            self._partial.begin()
        for first in range(0, parts, count):
            try:
                self.load(step, first)
                self._runner.train(TRAIN if first + count == parts else ACCUMULATE)
            except (RecordError, WaitEnded):
                if may_fail:
                    self._partial.undo()
                raise
            valid += self._runner.records
            if not self._runner.is_finite:
                raise Diverged
        return valid

    def load(self, step: int, first: int) -> None:
        """Begin to load the parts of a step from number `first` on, one for each context, and the
        position of the random streams.
        """
        iterator = self._train.iterator
        for number, replica in enumerate(self._replicas, first):
            batch, part = divmod(number, iterator.parts)
            draw, part = step * self._pace.accumulate + batch, iterator.first_part + part
            self._runner.load(replica, iterator, draw, part, weighted=True)

    def _look(self) -> None:
        """Raise Diverged if a parameter or state contains NaN or infinity."""
        is_finite = self._is_finite()
        if self._shared is not None:
            # States of which each rank has a part may be wrong on one of them alone.
            is_finite = self._shared.is_true_everywhere(is_finite)
        if not is_finite:
            raise Diverged

    def _report(self) -> None:
        values, (step, _) = self.measure.values(), self.position
        waited = self._waited()
        done = StepDone(self.progress.epoch, step, values, self._records, self._seconds, waited)
        self._observer.step_done(done)

    def _evaluate(self, saver: Saver, interrupted: Callable[[], bool]) -> Mapping[str, Figure]:
        if self._evaluation is None or self._evaluation_measure is None:
            return {}
        iterator, measure = self._evaluation.iterator, self._evaluation_measure
        measure.reset()
        self._runner.share_statistics()
        self._clear_carried(EVALUATE)
        number = 0
        try:
            iterator.reset(self.progress.epoch)
            while loaded := self._load_evaluated(iterator, number):
                number += len(loaded)
                self._runner.evaluate(len(loaded))
                for replica in loaded:
                    self._check_evaluated(replica)
                if interrupted():
                    self._runner.gather_states()
                    saver.stop(self.progress)
        except (RecordError, WaitEnded) as error:
            self._give_up(saver, self.progress, error)
        return measure.values()

    def _clear_carried(self, phase: str) -> None:
        """Set the states that a phase carries from run to run to zero: its records begin anew."""
        self._runner.clear_carried(phase)

    def _load_evaluated(self, iterator: DataIterator, number: int) -> list[Replica]:
        """Load the batches of an evaluation from `number` on, one for each context.

        Returns the contexts that have one.
        """
        count = iterator.batches(self.progress.epoch) * iterator.parts - number
        loaded = self._replicas[: max(0, count)]
        for each, replica in enumerate(loaded, number):
            self._runner.load(replica, iterator, UNTRAINED, each, weighted=False)
        return loaded

    def _check_evaluated(self, replica: Replica) -> None:
        """Raise EvaluationDiverged if the loss of the batch just evaluated is not finite."""
        measure, batch = replica.evaluation_measure, replica.batch
        if measure is not None and batch is not None and not measure.is_finite:
            executor, arrays = replica.executor, replica.slots.arrays
            program = replica.program(EVALUATE)
            found = located_in_evaluation(executor, program, arrays, batch, self.progress)
            raise EvaluationDiverged(found)

    def _give_up(
        self, saver: Saver, progress: Progress, error: RecordError | WaitEnded
    ) -> NoReturn:
        """Save `progress`, the state before a batch that is not available, and end the run."""
        self._runner.gather_states()
        if isinstance(error, RecordError):
            saver.fail(progress, error)
        saver.stop(progress)
        raise error

    @property
    def carried(self) -> Mapping[str, npt.NDArray[Any]]:
        """States that training carries, if they are not those of the plan alone."""
        return self._runner.carried

    @property
    def sliced(self) -> Mapping[str, npt.NDArray[Any]]:
        """Entire states of the optimizer, if they are not those of the plan; on the first rank."""
        return self._runner.sliced

    def share_states(self) -> None:
        """Give all ranks the `carried` states of the first, and their slices of the others."""
        self._runner.share_states()
