"""Learning-rate schedules that repeat: cycles of a triangle, and cosines with warm restarts."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from mxrun.base.params import NotNegative, Positive
from mxrun.train.schedule import (
    SCHEDULES,
    Moment,
    PositiveCount,
    Reduction,
    Schedule,
    require_one_unit,
)

_EXAMPLES: dict[str, Any] = {"examples": [{"epochs": 10}, {"steps": 2000}]}


class RepeatedSchedule(Schedule):
    """Base of schedules of equal cycles, or of growing ones; they begin after the warm-up."""

    model_config = ConfigDict(json_schema_extra=_EXAMPLES)
    depends_on_length: ClassVar[bool] = False

    steps: PositiveCount | None = Field(
        None, description="Steps of the first cycle; default: `epochs` is given instead."
    )
    epochs: PositiveCount | None = Field(
        None, description="Epochs of the first cycle; default: `steps` is given instead."
    )

    @model_validator(mode="after")
    def _one_unit(self) -> RepeatedSchedule:
        require_one_unit(self.steps, self.epochs)
        return self

    def length(self, moment: Moment) -> int:
        """Return the steps of the first cycle."""
        return self.steps or (self.epochs or 1) * moment.steps_per_epoch


@SCHEDULES.register(
    "cosine_restarts",
    foreign={
        "cosine_restarts: {epochs: 10, growth: 2}": "cosineannealingwarmrestarts "
        "cosinedecayrestarts sgdr"
    },
)
class CosineRestarts(RepeatedSchedule):
    """Cosine decay that begins again: final + (1 - final) * (1 + cos(pi * position)) / 2.

    position is the completed fraction of the cycle, whose length is the first one's times
    growth^(number of completed cycles). SGDR by Loshchilov and Hutter (arXiv 1608.03983) as in
    PyTorch's CosineAnnealingWarmRestarts.
    """

    growth: PositiveCount = Field(
        1, description="Factor of the length from one cycle to the next.", examples=[2]
    )
    final: NotNegative = Field(
        0.0, description="The rate before a restart, as a factor of lr.", examples=[0.01]
    )

    def relative(self, moment: Moment) -> float:
        """Return the factor, from 1 to final in every cycle."""
        at, length = moment.elapsed, self.length(moment)
        if self.growth == 1:
            at %= length
        while at >= length:
            at, length = at - length, length * self.growth
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * at / length)) / 2


@SCHEDULES.register("cyclic", foreign={"cyclic: {epochs: 4, first: 0.1}": "cycliclr triangular"})
class Cyclic(RepeatedSchedule):
    """Rise and fall in every cycle: first + (peak - first) * height * shrink^cycle * decay^step.

    height grows from 0 to 1 in the fraction `rise` of a cycle and falls back to 0 in the rest;
    cycle is the number of completed ones, step that of steps. Smith (arXiv 1506.01186) as in
    PyTorch's CyclicLR, without its cycle of the momentum: `triangular`, with a shrink of 0.5
    `triangular2`, with a decay `exp_range`.
    """

    first: NotNegative = Field(
        0.0, description="The rate between two cycles, as a factor of lr.", examples=[0.1]
    )
    peak: Positive = Field(1.0, description="The highest rate, as a factor of lr.")
    rise: Annotated[float, Field(gt=0, le=1)] = Field(
        0.5, description="The fraction of a cycle in which the rate rises."
    )
    shrink: Reduction = Field(
        1.0, description="Factor of the height from one cycle to the next.", examples=[0.5]
    )
    decay: Reduction = Field(
        1.0, description="Factor of the height from one step to the next.", examples=[0.999]
    )

    def full(self) -> float:
        """Return the factor at the beginning of the first cycle."""
        return self.first

    def relative(self, moment: Moment) -> float:
        """Return the factor."""
        length = self.length(moment)
        cycle, at = divmod(moment.elapsed, length)
        top = self.rise * length
        height = at / top if at <= top else (length - at) / (length - top)
        scale = math.pow(self.shrink, cycle) * math.pow(self.decay, moment.elapsed)
        return self.first + (self.peak - self.first) * height * scale
