"""Parameters of a run's course, and when and why it is over."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass
from mxrun.operator.optimizer import Optimizer
from mxrun.train.early_stopping import EvaluationMonitor
from mxrun.train.metric import why_undefined
from mxrun.train.progress import Progress
from mxrun.train.schedule import Schedule


@dataclass(frozen=True)
class TrainingParameters:
    """Parameters of a run's course: epochs, optimiser, schedule and monitor.

    accumulate: batches summed in one update. watch: decisions that depend on evaluations.
    max_steps: number of steps that ends the run earlier. log_every: steps between records.
    """

    epochs: int
    accumulate: int
    optimizer: Optimizer
    schedule: Schedule
    watch: EvaluationMonitor
    max_steps: int | None
    log_every: int | None

    def is_over(self, progress: Progress) -> bool:
        """Return whether the run has reached its end: all epochs or steps, or early stopping.

        In the middle of an epoch the last step does not suffice: its evaluation is still to come
        unless the run is marked as finished there.
        """
        evaluated = progress.batch == 0 or progress.finished
        return (
            progress.epoch > self.epochs
            or (self.has_all_steps(progress) and evaluated)
            or self.watch.is_over(progress)
        )

    def has_all_steps(self, progress: Progress) -> bool:
        """Return whether the last of `max_steps` is taken."""
        return self.max_steps is not None and progress.step >= self.max_steps

    def end_text(self, progress: Progress) -> str:
        """Return why a finished run has ended: `all 20 epochs`, `max_steps 500 reached`."""
        early = self.watch.early
        if early is not None and self.watch.is_over(progress):
            times = f"{early.patience} evaluation{'s' * (early.patience > 1)}"
            text = f"early stopping: {early.metric} has not improved for {times}"
            is_unknown = progress.evaluation.get(early.metric, progress.watched) is None
            why = why_undefined(early.metric) if is_unknown else ""
            return f"{text}: {why}" if why else text
        if self.has_all_steps(progress):
            return f"max_steps {self.max_steps} reached"
        return f"all {self.epochs} epochs" if self.epochs > 1 else "the only epoch"
