"""Progress of a run: the state that affects its future besides weights, states and metric sums."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from mxrun.base.params import Parameters

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
CountFrom1 = Annotated[int, Field(ge=1, lt=1 << 63)]

# Rows of a table; null for values that are not finite.
Counts = tuple[tuple[Count | float | None, ...], ...]


class Best(Parameters):
    """Best evaluation so far, by one metric."""

    metric: str = Field(description="The metric, such as accuracy.")
    value: float = Field(description="Value of the metric.")
    loss: float | None = Field(
        description="The loss of the same evaluation; null if it is not finite."
    )
    epoch: Count = Field(description="The epoch after which it was measured.")
    step: Count = Field(description="The step after which it was measured.")


Rank = tuple[float, float, int]


def rank(value: float, loss: float | None, epoch: int, higher: bool) -> Rank:
    """Return the rank of an evaluation by a metric: the best one has the highest.

    Of equal values the one with the lower loss is better, and of equal losses the later one.
    higher: whether more of the metric is better.
    """
    return value if higher else -value, -math.inf if loss is None else -loss, epoch


class SavedPlateau(Parameters):
    """Observations of a plateau schedule; see `PlateauState`."""

    best: float | None = Field(description="The best value so far; null before the first.")
    waited: Count = Field(description="Observations since then or since the last reduction.")
    cooling: Count = Field(description="Observations that are still not to count.")
    reductions: Count = Field(description="Reductions so far.")


class Progress(Parameters):
    """Point in a run: between two training steps, or after an epoch's evaluation."""

    step: Count = Field(default=0, description="Training steps taken.")
    epoch: CountFrom1 = Field(default=1, description="The current epoch, from 1.")
    batch: Count = Field(default=0, description="Batches of the epoch that are trained on.")
    best: Best | None = Field(
        default=None, description="The best evaluation so far, if the policy saves one."
    )
    watched: Best | None = Field(
        default=None, description="The best evaluation for early stopping."
    )
    stale: Count = Field(default=0, description="Evaluations without improvement since then.")
    plateau: SavedPlateau | None = Field(default=None, description="The plateau schedule's state.")
    evaluation: dict[str, float | Counts | None] = Field(
        default={},
        description="The last evaluation; null for values that are not finite, rows for a table.",
    )
    finished: bool = Field(default=False, description="Whether the run is over.")

    def with_(self, **changes: object) -> Progress:
        """Return a copy with the given fields changed."""
        return self.model_copy(update=changes)
