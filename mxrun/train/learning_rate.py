"""What the optimiser's step depends on beside gradients: the rate of each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mxrun.train.optimizer import Optimizer
from mxrun.train.schedule import Plateau, Schedule


@dataclass(frozen=True)
class LearningRateTimeline:
    """The schedule of an optimiser over a run of so many steps."""

    optimizer: Optimizer
    schedule: Schedule
    total_steps: int
    steps_per_epoch: int

    def at(self, step: int, plateau: Mapping[str, Any] | None) -> tuple[float, float, float]:
        """The learning rate of step `step`, counted from 1, and the two bias corrections.

        `plateau` is what a plateau schedule has observed.
        """
        schedule = self.schedule
        where = (step, self.total_steps, self.steps_per_epoch, self.optimizer.lr)
        if isinstance(schedule, Plateau) and plateau is not None:
            rate = schedule.resume(plateau).rate(*where)
        else:
            rate = schedule.rate(*where)
        return (rate, *self.optimizer.corrections(step))
