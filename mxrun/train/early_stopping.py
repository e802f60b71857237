"""Decisions after evaluations: best checkpoint, early stopping, learning rate on a plateau."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mxrun.train.metric_kind import Figure
from mxrun.train.progress import Best, Counts, Progress
from mxrun.train.schedule import Plateau


@dataclass(frozen=True)
class EarlyStopping:
    """Criterion that ends the run after `patience` successive evaluations without improvement.

    An improvement is a change of `metric` by more than `min_delta`.
    """

    metric: str
    patience: int
    min_delta: float


@dataclass(frozen=True)
class EvaluationMonitor:
    """Updates the progress of a run after each evaluation.

    best: the metric that selects the best checkpoint. early: the criterion of early stopping.
    plateau: the schedule that observes evaluations. higher: the metrics of which more is better.
    """

    best: str | None
    early: EarlyStopping | None
    plateau: Plateau | None
    higher: frozenset[str]

    def after_epoch(
        self, progress: Progress, train: Mapping[str, Figure], evaluation: Mapping[str, Figure]
    ) -> tuple[Progress, bool]:
        """Return the progress at the beginning of the next epoch, and whether this epoch was the
        best.

        Without evaluation data the metrics of training are used.
        """
        figures = evaluation or train
        measured = {name: value for name, value in figures.items() if not isinstance(value, list)}
        after = progress.with_(
            epoch=progress.epoch + 1,
            batch=0,
            evaluation=self.recorded(evaluation),
        )
        improved = False
        if self.best is not None:
            improved = self._is_improvement(self.best, measured, progress.best, 0.0)
            if improved:
                after = after.with_(best=_best(self.best, measured, progress))
        if self.early is not None:
            improved_early = self._is_improvement(
                self.early.metric, measured, progress.watched, self.early.min_delta
            )
            stale = 0 if improved_early else progress.stale + 1
            watched = (
                _best(self.early.metric, measured, progress) if improved_early else progress.watched
            )
            after = after.with_(watched=watched, stale=stale)
        if self.plateau is not None:
            before = progress.plateau
            state = self.plateau.start() if before is None else self.plateau.resume(before)
            after = after.with_(plateau=state.observe(measured[self.plateau.metric]).values())
        return after, improved

    def recorded(self, evaluation: Mapping[str, Figure]) -> dict[str, float | Counts | None]:
        """Return the figures of an evaluation as a checkpoint saves them."""
        return {name: _recorded(value) for name, value in evaluation.items()}

    def is_over(self, progress: Progress) -> bool:
        """Return whether the criterion of early stopping is met."""
        return self.early is not None and progress.stale >= self.early.patience

    def _is_improvement(
        self, metric: str, measured: Mapping[str, float], best: Best | None, min_gain: float
    ) -> bool:
        value = measured[metric]
        if not math.isfinite(value):
            return False
        if best is None:
            return True
        gain = value - best.value if metric in self.higher else best.value - value
        return gain > min_gain


def _recorded(figure: Figure) -> float | Counts | None:
    if isinstance(figure, list):
        return tuple(tuple(row) for row in figure)
    return figure if math.isfinite(figure) else None


def _best(metric: str, measured: Mapping[str, float], progress: Progress) -> Best:
    return Best(metric=metric, value=measured[metric], epoch=progress.epoch, step=progress.step)
