"""Learning-rate schedules: the rate of every step, as a pure function of the step's number.

All numbers of a schedule are factors of the optimiser's lr, here `base`, except for the limits that
MXNet and PyTorch give as rates (`stop_factor_lr`, `eps`). Steps are counted from 1, as MXNet counts
updates: `rate(step, ...)` is what MXNet 1.9.1's scheduler of the same kind gives for
`num_update=step`. Every schedule can begin with a warm-up.

Schedules that decay over the complete run (cosine, linear, polynomial) start at the end of the
warm-up and reach their final value in the last step. Steps or epochs given in a schedule are
counted from the start of the training, warm-up included.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from mxrun.base.dataclass import dataclass
from mxrun.base.params import Int32, NotNegative, Parameters, Positive
from mxrun.base.registry import Registry
from mxrun.train.progress import SavedPlateau

Reduction = Annotated[float, Field(gt=0, le=1)]
Part = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[Int32, Field(ge=0)]
PositiveCount = Annotated[Int32, Field(ge=1)]
Milestones = Annotated[tuple[PositiveCount, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Moment:
    """Position of a step after the warm-up; `step` is counted from the training's first, 1."""

    step: int
    total_steps: int
    steps_per_epoch: int
    warmup_steps: int

    @property
    def progress(self) -> float:
        """Completed fraction of the steps after the warm-up: 1 in the last step."""
        return _between(self.step, self.warmup_steps, self.total_steps)

    @property
    def elapsed(self) -> int:
        """Steps since the first at full rate: the last of the warm-up, or the first of the
        training.
        """
        return self.step - max(self.warmup_steps, 1)

    @property
    def remaining(self) -> int:
        """Value of `elapsed` in the last step."""
        return self.total_steps - max(self.warmup_steps, 1)


class Schedule(Parameters):
    """Base of schedules, with an optional warm-up.

    While step < warmup_steps, the rate grows from warmup_begin in equal increments, reaching the
    full rate at step warmup_steps, or stays at warmup_begin (mode constant).
    """

    depends_on_length: ClassVar[bool] = True
    """Whether the rate of a step depends on the number of steps of the complete run."""

    warmup_steps: Count = Field(
        0, description="Number of warm-up steps, until the full rate.", examples=[500]
    )
    warmup_mode: Literal["linear", "constant"] = Field(
        "linear", description="Whether the rate grows during the warm-up or stays at warmup_begin."
    )
    warmup_begin: Part = Field(
        0.0, description="Rate at the start of the warm-up, as a factor of lr.", examples=[0.1]
    )

    def rate(self, step: int, total_steps: int, steps_per_epoch: int, base: float) -> float:
        """Return the learning rate of step `step`, counted from 1, of `total_steps`."""
        if step >= self.warmup_steps:
            moment = Moment(
                step=step,
                total_steps=total_steps,
                steps_per_epoch=steps_per_epoch,
                warmup_steps=self.warmup_steps,
            )
            return self.rate_at(moment, base)
        begin = base * self.warmup_begin
        if self.warmup_mode == "constant":
            return begin
        return begin + (base * self.full() - begin) * step / self.warmup_steps

    def full(self) -> float:
        """Return the factor at the end of the warm-up."""
        return 1.0

    def rate_at(self, moment: Moment, base: float) -> float:
        """Return the learning rate after the warm-up."""
        return base * self.relative(moment)

    @abstractmethod
    def relative(self, moment: Moment) -> float:
        """Return the rate after the warm-up as a factor of the optimiser's lr."""


SCHEDULES: Registry[type[Schedule]] = Registry("schedule")


@SCHEDULES.register(
    "constant",
    foreign={
        "constant": "constantlr none fixed",
        "{constant: {warmup_steps: 500}}, as every schedule has": "warmup",
    },
)
class ConstantSchedule(Schedule):
    """The optimizer's lr at every step: factor = 1."""

    depends_on_length: ClassVar[bool] = False

    def relative(self, moment: Moment) -> float:
        """Return 1."""
        return 1.0


@SCHEDULES.register(
    "step", foreign={"step: {epochs: 10, factor: 0.1}": "steplr factorscheduler stepdecay"}
)
class StepDecay(Schedule):
    """Reduction at a fixed interval of steps or epochs: factor^floor((step - 1) / interval).

    MXNet's FactorScheduler, and with a stop_factor_lr of 0 PyTorch's StepLR.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"epochs": 30, "factor": 0.1}, {"steps": 1000}]}
    )
    depends_on_length: ClassVar[bool] = False

    steps: PositiveCount | None = Field(
        None, description="Steps between two reductions; default: `epochs` is given instead."
    )
    epochs: PositiveCount | None = Field(
        None, description="Epochs between two reductions; default: `steps` is given instead."
    )
    factor: Reduction = Field(0.1, description="Factor of every reduction.")
    stop_factor_lr: NotNegative = Field(
        1e-8, description="Lower bound on the reduced learning rate."
    )

    @model_validator(mode="after")
    def _one_unit(self) -> StepDecay:
        require_one_unit(self.steps, self.epochs)
        return self

    def rate_at(self, moment: Moment, base: float) -> float:
        """Return the rate, at least stop_factor_lr after the first reduction, as in MXNet."""
        rate = base * self.relative(moment)
        return max(rate, self.stop_factor_lr) if self._reductions(moment) else rate

    def relative(self, moment: Moment) -> float:
        """Return factor^(number of completed intervals)."""
        return self.factor ** self._reductions(moment)

    def _reductions(self, moment: Moment) -> int:
        interval = self.steps or (self.epochs or 1) * moment.steps_per_epoch
        return (moment.step - 1) // interval


@SCHEDULES.register(
    "multistep",
    foreign={
        "multistep: {epochs: [10, 20], factor: 0.1}": "multisteplr multifactorscheduler "
        "piecewiseconstantdecay",
    },
)
class MultiStep(Schedule):
    """Reduction after each of the given steps or epochs: factor^(number of those completed).

    MXNet's MultiFactorScheduler and PyTorch's MultiStepLR.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"epochs": [30, 60], "factor": 0.1}, {"steps": [1000, 2000]}]
        }
    )
    depends_on_length: ClassVar[bool] = False

    steps: Milestones | None = Field(
        None,
        description="The steps after which the rate is reduced, in increasing order; default: "
        "`epochs` is given instead.",
    )
    epochs: Milestones | None = Field(
        None,
        description="The epochs after which the rate is reduced, in increasing order; default: "
        "`steps` is given instead.",
    )
    factor: Reduction = Field(0.1, description="Factor of every reduction.")

    @model_validator(mode="after")
    def _one_unit(self) -> MultiStep:
        require_one_unit(self.steps, self.epochs)
        given = self.steps or self.epochs or ()
        if any(later <= earlier for earlier, later in pairwise(given)):
            raise ValueError("steps or epochs must increase")
        return self

    def relative(self, moment: Moment) -> float:
        """Return factor^(number of milestones passed)."""
        milestones = self.steps or [e * moment.steps_per_epoch for e in self.epochs or ()]
        return self.factor ** sum(milestone < moment.step for milestone in milestones)


@SCHEDULES.register(
    "cosine", foreign={"cosine": "cosineannealinglr cosineannealing cosinedecay cosinescheduler"}
)
class Cosine(Schedule):
    """Cosine decay: final + (1 - final) * (1 + cos(pi * progress)) / 2.

    MXNet's CosineScheduler and PyTorch's CosineAnnealingLR.
    """

    final: NotNegative = Field(
        0.0, description="The last step's rate, as a factor of lr.", examples=[0.01]
    )

    def relative(self, moment: Moment) -> float:
        """Return the factor, from 1 to final."""
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * moment.progress)) / 2


@SCHEDULES.register("linear", foreign={"linear": "linearlr lineardecay"})
class Linear(Schedule):
    """Linear decay: final + (1 - final) * (1 - progress).

    MXNet's PolyScheduler of power 1 and PyTorch's LinearLR.
    """

    final: NotNegative = Field(
        0.0, description="The last step's rate, as a factor of lr.", examples=[0.01]
    )

    def relative(self, moment: Moment) -> float:
        """Return the factor, from 1 to final."""
        return self.final + (1 - self.final) * (1 - moment.progress)


@SCHEDULES.register(
    "polynomial", foreign={"polynomial": "polynomiallr polynomialdecay polyscheduler"}
)
class Polynomial(Schedule):
    """Polynomial decay: final + (1 - final) * (1 - progress)^power.

    MXNet's PolyScheduler and PyTorch's PolynomialLR.
    """

    power: Positive = Field(2.0, description="The exponent.")
    final: NotNegative = Field(
        0.0, description="The last step's rate, as a factor of lr.", examples=[0.01]
    )

    def relative(self, moment: Moment) -> float:
        """Return the factor, from 1 to final."""
        return self.final + (1 - self.final) * math.pow(1 - moment.progress, self.power)


@SCHEDULES.register(
    "exponential", foreign={"exponential: {factor: 0.95}": "exponentiallr exponentialdecay"}
)
class Exponential(Schedule):
    """Exponential decay, a little at every step: factor^(epochs since the warm-up).

    It equals PyTorch's ExponentialLR at the first step of every epoch; PyTorch holds that value
    until the epoch's end, as `step: {epochs: 1, factor: ...}` does.
    """

    depends_on_length: ClassVar[bool] = False

    factor: Reduction = Field(
        description="Factor of the rate from one epoch to the next.", examples=[0.95]
    )

    def relative(self, moment: Moment) -> float:
        """Return factor^(epochs elapsed), with fractions of epochs."""
        return math.pow(self.factor, moment.elapsed / moment.steps_per_epoch)


@SCHEDULES.register("one_cycle", foreign={"one_cycle: {peak: 0.1}": "onecyclelr"})
class OneCycle(Schedule):
    """Rise from peak / start_divisor to peak, then decay to the first rate / final_divisor.

    Super-convergence by Smith and Topin (arXiv 1708.07120) as in PyTorch's OneCycleLR, without its
    cycle of the momentum. The rise takes the fraction `rise` of the steps.
    """

    peak: Positive = Field(1.0, description="The highest rate, as a factor of lr.")
    rise: Part = Field(0.3, description="The fraction of the steps in which the rate rises.")
    start_divisor: Annotated[NotNegative, Field(ge=1)] = Field(
        25.0, description="The highest rate divided by the first."
    )
    final_divisor: Annotated[NotNegative, Field(ge=1)] = Field(
        1e4, description="The first rate divided by the last."
    )
    anneal: Literal["cosine", "linear"] = Field(
        "cosine", description="Shape of the rise and of the decay."
    )

    def full(self) -> float:
        """Return the factor at the beginning of the cycle."""
        return self.peak / self.start_divisor

    def relative(self, moment: Moment) -> float:
        """Return the factor; the rise ends one step before the fraction `rise`, as in PyTorch.

        If that is before the first step, the rate already falls in the first step.
        """
        top = self.rise * (moment.remaining + 1) - 1
        if moment.elapsed <= top:
            return self._from_to(self.full(), self.peak, _between(moment.elapsed, 0, top))
        final = self.full() / self.final_divisor
        return self._from_to(self.peak, final, _between(moment.elapsed, top, moment.remaining))

    def _from_to(self, first: float, last: float, progress: float) -> float:
        if self.anneal == "linear":
            return first + (last - first) * progress
        return last + (first - last) * (1 + math.cos(math.pi * progress)) / 2


@SCHEDULES.register("plateau", foreign={"plateau": "reducelronplateau reduceonplateau"})
class Plateau(Schedule):
    """Reduction whenever a metric has not improved for more than `patience` observations.

    PyTorch's ReduceLROnPlateau with a relative threshold. The observations so far are stored in a
    separate value, `PlateauState`; without one, the rate is constant.
    """

    depends_on_length: ClassVar[bool] = False

    metric: str = Field(
        "loss",
        description="The observed metric, of the evaluation, or of training if there is none: "
        "loss, or the name of a metric's figure, such as accuracy.",
        examples=["accuracy"],
    )
    mode: Literal["min", "max"] | None = Field(
        None,
        description="Whether less or more is better; default: that of the metric.",
        examples=["max"],
    )
    factor: Reduction = Field(0.1, description="Factor of every reduction.")
    patience: Count = Field(10, description="Observations without improvement that are tolerated.")
    threshold: NotNegative = Field(
        1e-4, description="Least improvement that counts, as a fraction of the best value."
    )
    cooldown: Count = Field(
        0, description="Observations after a reduction that are not counted towards patience."
    )
    min: Part = Field(0.0, description="Lower bound on the rate, as a factor of lr.")
    eps: NotNegative = Field(
        1e-8, description="Reductions of the learning rate by no more than this are skipped."
    )

    def relative(self, moment: Moment) -> float:
        """Return 1."""
        return 1.0

    def reduced(self, reductions: int, base: float) -> float:
        """Return the factor after `reductions` reductions of a rate that started as `base`."""
        reached = 1.0
        for count in range(1, reductions + 1):
            factor = max(self.factor**count, self.min)
            if base * (reached - factor) <= self.eps:
                break
            reached = factor
        return reached

    def directed(self, higher: Collection[str]) -> Plateau:
        """Return the schedule with its mode set; `higher` are metrics of which more is better."""
        mode = self.mode or ("max" if self.metric in higher else "min")
        return self.model_copy(update={"mode": mode})

    def start(self) -> PlateauState:
        """Return the state before the first observation."""
        return PlateauState(self)

    def resume(self, saved: SavedPlateau) -> PlateauState:
        """Return the state given by `PlateauState.saved`."""
        return PlateauState(self, **dict(saved))


@dataclass(frozen=True)
class PlateauState:
    """Observations of a plateau schedule.

    best: the best value; None before the first. waited: observations since then, or since the last
    reduction. cooling: remaining observations that do not count. reductions: the number of
    reductions so far.
    """

    schedule: Plateau
    best: float | None = None
    waited: int = 0
    cooling: int = 0
    reductions: int = 0

    def saved(self) -> SavedPlateau:
        """Return the state without the schedule, for JSON, which preserves floats exactly."""
        return SavedPlateau(
            best=self.best,
            waited=self.waited,
            cooling=self.cooling,
            reductions=self.reductions,
        )

    def rate(self, step: int, total_steps: int, steps_per_epoch: int, base: float) -> float:
        """Return the schedule's rate after the reductions so far."""
        reduced = self.schedule.reduced(self.reductions, base)
        return self.schedule.rate(step, total_steps, steps_per_epoch, base) * reduced

    def observe(self, value: float) -> PlateauState:
        """Return the state after one more observation; a value that is not finite is no
        improvement.
        """
        if self._improves(value):
            state = replace(self, best=value, waited=0)
        else:
            state = replace(self, waited=self.waited + 1)
        if state.cooling:
            state = replace(state, cooling=state.cooling - 1, waited=0)
        if state.waited <= self.schedule.patience:
            return state
        return replace(
            state, waited=0, cooling=self.schedule.cooldown, reductions=state.reductions + 1
        )

    def _improves(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        if self.best is None:
            return True
        margin = self.schedule.threshold * abs(self.best)
        if self.schedule.mode == "max":
            return value > self.best + margin
        return value < self.best - margin


def require_one_unit(steps: object, epochs: object) -> None:
    """Raise ValueError unless a schedule is given in steps or in epochs, and not in both."""
    if (steps is None) == (epochs is None):
        raise ValueError("give either steps or epochs")


def _between(position: float, first: float, last: float) -> float:
    """Return the relative position between `first` and `last`, clipped to 0..1."""
    if position >= last:
        return 1.0
    return max(0.0, (position - first) / (last - first))
