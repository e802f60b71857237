"""Learning rate and bias corrections of every step of a run."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass
from mxrun.operator.optimizer import Optimizer
from mxrun.train.progress import SavedPlateau
from mxrun.train.schedule import Plateau, Schedule


@dataclass(frozen=True)
class LearningRateTimeline:
    """Schedule and optimiser bound to the number of steps of a run."""

    optimizer: Optimizer
    schedule: Schedule
    total_steps: int
    steps_per_epoch: int

    def at(self, step: int, plateau: SavedPlateau | None) -> tuple[float, float, float]:
        """Return the learning rate of step `step`, counted from 1, and the two bias corrections.

        `plateau` is the state of a plateau schedule, if any.
        """
        schedule = self.schedule
        where = (step, self.total_steps, self.steps_per_epoch, self.optimizer.lr)
        if isinstance(schedule, Plateau) and plateau is not None:
            rate = schedule.resume(plateau).rate(*where)
        else:
            rate = schedule.rate(*where)
        return (rate, *self.optimizer.corrections(step))
