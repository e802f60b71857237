"""Decisions after evaluations: best checkpoint, early stopping, learning rate on a plateau."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mxrun.base.dataclass import dataclass
from mxrun.train.metric_kind import Figure
from mxrun.train.progress import Best, Counts, Progress, rank
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
            best = self._better(_best(self.best, measured, progress), progress.best)
            improved = best != progress.best
            after = after.with_(best=best)
        if self.early is not None:
            now, last = _best(self.early.metric, measured, progress), progress.watched
            watched = self._better(now, last, self.early.min_delta)
            # An equal value may be of a better evaluation, but is no improvement.
            improved_early = watched is not None and (last is None or watched.value != last.value)
            after = after.with_(watched=watched, stale=0 if improved_early else progress.stale + 1)
        if self.plateau is not None:
            before = progress.plateau
            state = self.plateau.start() if before is None else self.plateau.resume(before)
            after = after.with_(plateau=state.observe(measured[self.plateau.metric]).saved())
        return after, improved

    def recorded(self, evaluation: Mapping[str, Figure]) -> dict[str, float | Counts | None]:
        """Return the figures of an evaluation as a checkpoint saves them."""
        return {name: _recorded(value) for name, value in evaluation.items()}

    def is_over(self, progress: Progress) -> bool:
        """Return whether the criterion of early stopping is met."""
        return self.early is not None and progress.stale >= self.early.patience

    def _better(self, now: Best | None, before: Best | None, gain: float = 0.0) -> Best | None:
        """Return the better of two evaluations; one of another value has to gain more than `gain`.

        None for those in which the metric is undefined.
        """
        if now is None or before is None:
            return now or before
        higher = now.metric in self.higher
        ranks = [rank(each.value, each.loss, each.epoch, higher) for each in (before, now)]
        difference = abs(now.value - before.value)
        return now if ranks[1] > ranks[0] and (difference > gain or not difference) else before


def _recorded(figure: Figure) -> float | Counts | None:
    if isinstance(figure, list):
        return tuple(tuple(row) for row in figure)
    return figure if math.isfinite(figure) else None


def _best(metric: str, measured: Mapping[str, float], progress: Progress) -> Best | None:
    """Return a metric of an evaluation; None if it is not finite."""
    value, loss = measured[metric], measured["loss"]
    if not math.isfinite(value):
        return None
    return Best(
        metric=metric,
        value=value,
        loss=loss if math.isfinite(loss) else None,
        epoch=progress.epoch,
        step=progress.step,
    )
