"""How far a run is: all that decides its future beside weights, states and measured sums."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mxrun.base.params import Parameters

Count = Annotated[int, Field(ge=0)]


# Rows of a table; null for what is not a number.
Counts = tuple[tuple[int | float | None, ...], ...]


class Best(Parameters):
    """The best evaluation so far, by one metric."""

    metric: str = Field(description="The metric, such as accuracy.")
    value: float = Field(description="Its value.")
    epoch: Count = Field(description="The epoch it was measured after.")
    step: Count = Field(description="The step it was measured after.")


class Progress(Parameters):
    """A moment of a run: between two training steps, or after an epoch's evaluation."""

    step: Count = Field(default=0, description="Training steps taken.")
    epoch: Annotated[int, Field(ge=1)] = Field(default=1, description="The epoch in hand, from 1.")
    batch: Count = Field(default=0, description="Batches of it that are trained on.")
    best: Best | None = Field(
        default=None, description="The best evaluation so far, where one is kept."
    )
    watched: Best | None = Field(
        default=None, description="The best evaluation for early stopping."
    )
    stale: Count = Field(default=0, description="Evaluations since then.")
    plateau: dict[str, Any] | None = Field(
        default=None, description="The plateau schedule's state."
    )
    evaluation: dict[str, float | Counts | None] = Field(
        default={},
        description="The last evaluation; null for what is not a number, rows for a table.",
    )
    finished: bool = Field(default=False, description="Whether the run is over.")

    def with_(self, **changes: object) -> Progress:
        """The same with other values."""
        return self.model_copy(update=changes)
