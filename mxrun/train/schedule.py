"""Schedules: the learning rate of every step, as a pure function of the step's number.

All numbers of a schedule are factors of the optimizer's lr, here `base`, but for the limits that
MXNet and PyTorch give as rates (`stop_factor_lr`, `eps`). Steps are counted from 1,
as MXNet counts updates: `rate(step, ...)` is what MXNet 1.9.1's scheduler of the same kind gives
for `num_update=step`. Every schedule can begin with a warm-up.

What falls over the whole run (cosine, linear, polynomial) falls from the end of the warm-up and
reaches its final value in the last step. What happens at given steps or epochs counts them from the
start of the training, warm-up included.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mxrun.base.params import Int32, NotNegative, Parameters, Positive
from mxrun.base.registry import Registry

Reduction = Annotated[float, Field(gt=0, le=1)]
Part = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[Int32, Field(ge=0)]
Interval = Annotated[Int32, Field(ge=1)]
Milestones = Annotated[tuple[Interval, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Moment:
    """Where in a training a step stands; `step` is counted from 1, `warmup_steps` are over."""

    step: int
    total_steps: int
    steps_per_epoch: int
    warmup_steps: int

    @property
    def progress(self) -> float:
        """How much of what follows the warm-up is done: 1 in the last step."""
        return _between(self.step, self.warmup_steps, self.total_steps)

    @property
    def elapsed(self) -> int:
        """Steps since the first one at full rate: the warm-up's last, or the training's first."""
        return self.step - max(self.warmup_steps, 1)

    @property
    def remaining(self) -> int:
        """What `elapsed` is in the last step."""
        return self.total_steps - max(self.warmup_steps, 1)


class Schedule(Parameters):
    """What every schedule has: a warm-up.

    While step < warmup_steps, the rate grows from warmup_begin in equal increments, reaching the
    full rate at step warmup_steps, or stays at warmup_begin (mode constant).
    """

    warmup_steps: Count = Field(0, description="Steps until the full rate.")
    warmup_mode: Literal["linear", "constant"] = Field(
        "linear", description="Whether the warm-up grows or stays at warmup_begin."
    )
    warmup_begin: Part = Field(0.0, description="Where the warm-up begins, as a factor of lr.")

    def rate(self, step: int, total_steps: int, steps_per_epoch: int, base: float) -> float:
        """The learning rate of step `step`, counted from 1, of `total_steps`."""
        if step >= self.warmup_steps:
            moment = Moment(step, total_steps, steps_per_epoch, self.warmup_steps)
            return self.rate_at(moment, base)
        begin = base * self.warmup_begin
        if self.warmup_mode == "constant":
            return begin
        return begin + (base * self.full() - begin) * step / self.warmup_steps

    def full(self) -> float:
        """The factor that the warm-up leads to."""
        return 1.0

    def rate_at(self, moment: Moment, base: float) -> float:
        """The learning rate, once the warm-up is over."""
        return base * self.relative(moment)

    @abstractmethod
    def relative(self, moment: Moment) -> float:
        """The rate as a factor of the optimizer's lr, once the warm-up is over."""


class ConstantSchedule(Schedule):
    """The optimizer's lr at every step: factor = 1."""

    def relative(self, moment: Moment) -> float:
        """1."""
        return 1.0


class StepDecay(Schedule):
    """A reduction after every so many steps or epochs: factor^floor((step - 1) / interval).

    MXNet's FactorScheduler, and with a stop_factor_lr of 0 PyTorch's StepLR.
    """

    steps: Interval | None = Field(None, description="Steps between two reductions.")
    epochs: Interval | None = Field(None, description="Or epochs between two reductions.")
    factor: Reduction = Field(0.1, description="Factor of every reduction.")
    stop_factor_lr: NotNegative = Field(
        1e-8, description="The learning rate below which no reduction leads."
    )

    @model_validator(mode="after")
    def _one_unit(self) -> StepDecay:
        _require_one_unit(self.steps, self.epochs)
        return self

    def rate_at(self, moment: Moment, base: float) -> float:
        """At least stop_factor_lr once there was a reduction, as in MXNet."""
        rate = base * self.relative(moment)
        return max(rate, self.stop_factor_lr) if self._reductions(moment) else rate

    def relative(self, moment: Moment) -> float:
        """One reduction for every interval that is over."""
        return self.factor ** self._reductions(moment)

    def _reductions(self, moment: Moment) -> int:
        interval = self.steps or (self.epochs or 1) * moment.steps_per_epoch
        return (moment.step - 1) // interval


class MultiStep(Schedule):
    """A reduction after each of some steps or epochs: factor^(how many of them are over).

    MXNet's MultiFactorScheduler and PyTorch's MultiStepLR.
    """

    steps: Milestones | None = Field(
        None, description="The steps after which the rate is reduced, in increasing order."
    )
    epochs: Milestones | None = Field(
        None, description="Or the epochs after which it is reduced, in increasing order."
    )
    factor: Reduction = Field(0.1, description="Factor of every reduction.")

    @model_validator(mode="after")
    def _one_unit(self) -> MultiStep:
        _require_one_unit(self.steps, self.epochs)
        given = self.steps or self.epochs or ()
        if any(later <= earlier for earlier, later in pairwise(given)):
            raise ValueError("steps or epochs must increase")
        return self

    def relative(self, moment: Moment) -> float:
        """One reduction for every milestone that is over."""
        milestones = self.steps or [e * moment.steps_per_epoch for e in self.epochs or ()]
        return self.factor ** sum(milestone < moment.step for milestone in milestones)


class Cosine(Schedule):
    """Half a cosine's fall: final + (1 - final) * (1 + cos(pi * progress)) / 2.

    MXNet's CosineScheduler and PyTorch's CosineAnnealingLR.
    """

    final: NotNegative = Field(0.0, description="The last step's rate, as a factor of lr.")

    def relative(self, moment: Moment) -> float:
        """From 1 to final."""
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * moment.progress)) / 2


class Linear(Schedule):
    """A straight line: final + (1 - final) * (1 - progress).

    MXNet's PolyScheduler of power 1 and PyTorch's LinearLR.
    """

    final: NotNegative = Field(0.0, description="The last step's rate, as a factor of lr.")

    def relative(self, moment: Moment) -> float:
        """From 1 to final."""
        return self.final + (1 - self.final) * (1 - moment.progress)


class Polynomial(Schedule):
    """A power of what is left: final + (1 - final) * (1 - progress)^power.

    MXNet's PolyScheduler and PyTorch's PolynomialLR.
    """

    power: Positive = Field(2.0, description="The exponent.")
    final: NotNegative = Field(0.0, description="The last step's rate, as a factor of lr.")

    def relative(self, moment: Moment) -> float:
        """From 1 to final."""
        return self.final + (1 - self.final) * math.pow(1 - moment.progress, self.power)


class Exponential(Schedule):
    """A steady reduction, a little at every step: factor^(epochs since the warm-up).

    At the first step of every epoch the value of PyTorch's ExponentialLR, which holds it until the
    epoch's end; that would be `step: {epochs: 1, factor: ...}`.
    """

    factor: Reduction = Field(description="Factor of the rate from one epoch to the next.")

    def relative(self, moment: Moment) -> float:
        """Fractions of an epoch count."""
        return math.pow(self.factor, moment.elapsed / moment.steps_per_epoch)


class OneCycle(Schedule):
    """A rise from peak / start_divisor to peak, then a fall to the first rate / final_divisor.

    Smith's and Topin's super-convergence (arXiv 1708.07120) as PyTorch's OneCycleLR has it, without
    its cycle of the momentum: the rise takes the share `rise` of the steps.
    """

    peak: Positive = Field(1.0, description="The highest rate, as a factor of lr.")
    rise: Part = Field(0.3, description="The share of the steps in which the rate rises.")
    start_divisor: Annotated[NotNegative, Field(ge=1)] = Field(
        25.0, description="The highest rate over the first."
    )
    final_divisor: Annotated[NotNegative, Field(ge=1)] = Field(
        1e4, description="The first rate over the last."
    )
    anneal: Literal["cosine", "linear"] = Field("cosine", description="How the rate moves.")

    def full(self) -> float:
        """The rate with which the cycle begins."""
        return self.peak / self.start_divisor

    def relative(self, moment: Moment) -> float:
        """The rise ends one step before `rise` of them are over, as PyTorch counts.

        Where that is before the first step, the fall is on its way already in the first step.
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


class Plateau(Schedule):
    """A reduction whenever a metric has not improved for more than `patience` observations.

    PyTorch's ReduceLROnPlateau with a relative threshold. What was observed so far is a value of
    its own, `PlateauState`; without one, this is a constant rate.
    """

    metric: str = Field("loss", description="The metric, of the evaluation where there is one.")
    mode: Literal["min", "max"] | None = Field(
        None, description="Whether less or more is better; default: as the metric has it."
    )
    factor: Reduction = Field(0.1, description="Factor of every reduction.")
    patience: Count = Field(10, description="Observations without improvement that are borne.")
    threshold: NotNegative = Field(
        1e-4, description="By what share of the best value an improvement must exceed it."
    )
    cooldown: Count = Field(
        0, description="Observations after a reduction that do not count as without improvement."
    )
    min: Part = Field(0.0, description="The least rate, as a factor of lr.")
    eps: NotNegative = Field(
        1e-8, description="A reduction that would lower the learning rate by no more is left out."
    )

    def relative(self, moment: Moment) -> float:
        """1."""
        return 1.0

    def reduced(self, reductions: int, base: float) -> float:
        """The factor after so many reductions of a rate that began as `base`."""
        reached = 1.0
        for count in range(1, reductions + 1):
            factor = max(self.factor**count, self.min)
            if base * (reached - factor) <= self.eps:
                break
            reached = factor
        return reached

    def directed(self, higher: Collection[str]) -> Plateau:
        """The same with a mode; `higher` are the metrics of which more is better."""
        mode = self.mode or ("max" if self.metric in higher else "min")
        return self.model_copy(update={"mode": mode})

    def start(self) -> PlateauState:
        """Nothing observed yet."""
        return PlateauState(self)

    def resume(self, values: Mapping[str, Any]) -> PlateauState:
        """The state that `PlateauState.values` described."""
        return PlateauState(
            self,
            best=values["best"],
            waited=values["waited"],
            cooling=values["cooling"],
            reductions=values["reductions"],
        )


@dataclass(frozen=True)
class PlateauState:
    """What a plateau schedule has observed.

    best: the best value; None before there is one. waited: observations since, or since the last
    reduction. cooling: observations left that do not count. reductions: how many there were.
    """

    schedule: Plateau
    best: float | None = None
    waited: int = 0
    cooling: int = 0
    reductions: int = 0

    def values(self) -> dict[str, float | int | None]:
        """Everything but the schedule, for JSON, which gives floats back exactly."""
        return {
            "best": self.best,
            "waited": self.waited,
            "cooling": self.cooling,
            "reductions": self.reductions,
        }

    def rate(self, step: int, total_steps: int, steps_per_epoch: int, base: float) -> float:
        """The schedule's rate after the reductions so far."""
        reduced = self.schedule.reduced(self.reductions, base)
        return self.schedule.rate(step, total_steps, steps_per_epoch, base) * reduced

    def observe(self, value: float) -> PlateauState:
        """The state after one more observation; one that is not finite is no improvement."""
        if self._improves(value):
            seen = replace(self, best=value, waited=0)
        else:
            seen = replace(self, waited=self.waited + 1)
        if seen.cooling:
            seen = replace(seen, cooling=seen.cooling - 1, waited=0)
        if seen.waited <= self.schedule.patience:
            return seen
        return replace(
            seen, waited=0, cooling=self.schedule.cooldown, reductions=seen.reductions + 1
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


def _require_one_unit(steps: object, epochs: object) -> None:
    if (steps is None) == (epochs is None):
        raise ValueError("give either steps or epochs")


def _between(position: float, first: float, last: float) -> float:
    """How far `position` is on the way from `first` to `last`: within 0 and 1."""
    if position >= last:
        return 1.0
    return max(0.0, (position - first) / (last - first))


SCHEDULES: Registry[type[Schedule]] = Registry("schedule")
SCHEDULES.add("constant", ConstantSchedule)
SCHEDULES.add("step", StepDecay)
SCHEDULES.add("multistep", MultiStep)
SCHEDULES.add("cosine", Cosine)
SCHEDULES.add("linear", Linear)
SCHEDULES.add("polynomial", Polynomial)
SCHEDULES.add("exponential", Exponential)
SCHEDULES.add("one_cycle", OneCycle)
SCHEDULES.add("plateau", Plateau)
