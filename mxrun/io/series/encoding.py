"""Scaling learned of a series' columns, saved with the run and undone in forecasts."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mxrun.io.series.clock import Clock
from mxrun.io.tables.encoding import EncodedNumber, TableEncoding

_Size = Annotated[int, Field(ge=1)]


class SeriesEncoding(TableEncoding):
    """Encoding of the columns of a step: the targets, then past ones, then known ones."""

    targets: _Size = Field(description="Number of columns that are predicted, the first ones.")
    known: Annotated[int, Field(ge=0)] = Field(
        description="Number of columns that are known in the future, the last ones."
    )
    window: _Size = Field(description="Number of steps that the network reads.")
    horizon: _Size = Field(description="Number of steps that it predicts.")
    season: int | None = Field(description="Number of steps of a season, if there is one.")
    clock: Clock = Field(description="The time stamps of training.")
    naive_errors: dict[str, tuple[float, ...]] = Field(
        description="Of each target, by series: mean absolute difference of two training steps at "
        "the distance of a season, or of 1: the unit of MASE."
    )

    @property
    def target_columns(self) -> tuple[EncodedNumber, ...]:
        """The columns that are predicted."""
        chosen = self.columns[: self.targets]
        return tuple(each for each in chosen if isinstance(each, EncodedNumber))

    @property
    def known_inputs(self) -> int:
        """Number of a step's numbers that are known in the future, the last ones."""
        return sum(len(each.inputs) for each in self.columns[len(self.columns) - self.known :])

    @property
    def naive_steps(self) -> tuple[int, int]:
        """How many steps before the horizon the naive forecast begins, and its length.

        It is the season before, or the last step if no season has a horizon's length.
        """
        if self.season is not None and self.season >= self.horizon:
            return self.season, self.horizon
        return 1, 1

    def original(
        self, values: NDArray[np.float32], series: NDArray[np.str_]
    ) -> NDArray[np.float64]:
        """Return predictions [records, horizon, targets] of any such shape in their own units.

        series: names of the records' series.
        """
        shape = (len(values), self.horizon, self.targets)
        found = np.empty(shape)
        for at, column in enumerate(self.target_columns):
            found[..., at] = column.original(values.reshape(shape)[..., at], series)
        return found.reshape(values.shape)
