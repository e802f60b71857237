"""Optimizer of a program: an update rule with rates, multipliers and counts of updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from mxrun.base.context import Context
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import check
from mxrun.graph.update_rule import Multipliers, default_decay, update_rule
from mxrun.imperative.arrays.creation import array, zeros
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.calls.invoke import invoke
from mxrun.operator.optimizer import BATCH_SIZE, OPTIMIZERS, Optimizer
from mxrun.operator.register import AnyProperty

Index: TypeAlias = int | str
States: TypeAlias = tuple[NDArray, ...]
Scheduler: TypeAlias = Callable[[int], float]

# MXNet's names of parameters that have another name in configs.
_FIELDS = {"learning_rate": "lr", "eps": "epsilon"}


class ImperativeOptimizer:
    """Update rule with learning rates, multipliers and counts of updates.

    A parameter is named by its index, an integer or a string. name, rule: the optimizer's name and
    parameters. rescale_grad: factor of every gradient, often 1 / batch size; it may be set at any
    time. lr_scheduler: the learning rate as a function of the number of updates. lr_mult, wd_mult:
    factors of the rate and the weight decay, by index or by name. idx2name: names by index.
    num_update: the most updates of one parameter. update_counts: updates of each parameter on each
    device.
    """

    def __init__(
        self,
        name: str,
        rule: Optimizer,
        lr_scheduler: Scheduler | None = None,
        param_idx2name: Mapping[int, str] | None = None,
        begin_num_update: int = 0,
    ) -> None:
        self.name, self.rule, self.lr = name, rule, rule.lr
        given = rule.rescale_grad
        self.rescale_grad = given if isinstance(given, float) else 1.0
        self.lr_scheduler = lr_scheduler
        self.idx2name = dict(param_idx2name or {})
        self.begin_num_update = self.num_update = begin_num_update
        self.update_counts: dict[Context, dict[Index, int]] = defaultdict(dict)
        self.lr_mult: dict[Index, float] = {}
        self.wd_mult: dict[Index, float] = {}
        self.set_wd_mult({})
        self._properties: dict[tuple[float, float, float], AnyProperty] = {}
        self._schedules: dict[Context, tuple[tuple[float, ...], NDArray]] = {}

    # -- rates and multipliers -----------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """Present learning rate, without multipliers."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate; raises UserError if a scheduler gives it."""
        if self.lr_scheduler is not None:
            raise UserError("the learning rate is that of lr_scheduler; it cannot be set")
        self.lr = lr

    def set_lr_mult(self, args_lr_mult: Mapping[Index, float]) -> None:
        """Set the factors of the learning rate by index or by name; others are 1."""
        self.lr_mult = dict(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Mapping[Index, float]) -> None:
        """Set the factors of the weight decay by index or by name.

        Others are 1, or 0 for biases, gammas and betas by the names in `idx2name`.
        """
        defaults: dict[Index, float] = {
            name: 0.0 for name in self.idx2name.values() if not default_decay(name)
        }
        self.wd_mult = {**defaults, **args_wd_mult}

    def _multiplier(self, factors: Mapping[Index, float], index: Index) -> float:
        if index in factors:
            return factors[index]
        name = self.idx2name.get(index) if isinstance(index, int) else None
        return 1.0 if name is None else factors.get(name, 1.0)

    # -- updates -------------------------------------------------------------------------------

    def create_state(self, index: Index, weight: NDArray) -> States:
        """Return the states of a weight, all zero, in the order of the update operator."""
        return tuple(zeros(weight.shape, weight.context, weight.dtype) for _ in self.rule.states)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: States) -> None:
        """Change a weight and its states in place by the gradient."""
        counts = self.update_counts[weight.context]
        counts[index] = counts.get(index, self.begin_num_update) + 1
        self.num_update = max(self.num_update, counts[index])
        numbers = (self.learning_rate, *self.rule.corrections(counts[index]))
        schedule = self._schedule(weight.context, numbers)
        prop = self._property(index)
        invoke(prop, [weight, grad, *state, schedule], [weight])

    def _property(self, index: Index) -> AnyProperty:
        """Return the update operator of a parameter."""
        rate = self._multiplier(self.lr_mult, index)
        decay = self._multiplier(self.wd_mult, index)
        key = rate, decay, self.rescale_grad
        found = self._properties.get(key)
        if found is None:
            rule = update_rule(self.rule, str(index), Multipliers(rate, decay), self.rescale_grad)
            found = self._properties[key] = rule.create()
        return found

    def _schedule(self, context: Context, numbers: tuple[float, ...]) -> NDArray:
        """Return the array with the step's numbers, which parameters of one count share."""
        known = self._schedules.get(context)
        if known is None or known[0] != numbers:
            known = numbers, array(numbers, context)
            self._schedules[context] = known
        return known[1]


def create(
    name: str,
    *,
    lr_scheduler: Scheduler | None = None,
    param_idx2name: Mapping[int, str] | None = None,
    begin_num_update: int = 0,
    **parameters: object,
) -> ImperativeOptimizer:
    """Return the optimizer `name`: sgd, nag, adam, adamw, lamb, adagrad, rmsprop, ftrl or signum.

    parameters: learning_rate, wd, rescale_grad (default 1), clip_gradient and those of the
    optimizer, by MXNet's names. lr_scheduler: the learning rate as a function of the number of
    updates; its attribute `base_lr` becomes the learning rate if both are given. param_idx2name:
    names of the parameters, by which multipliers are given.

    Raises UserError for another name or other parameters.
    """
    if "lr" in parameters:
        hint = "did you mean 'learning_rate'?"
        raise UserError(Diagnostic(f"{name} has no parameter 'lr'", hint=hint))
    if parameters.get("rescale_grad") == BATCH_SIZE:
        hint = "give the number, such as 1 / 64"
        raise UserError(Diagnostic("an updater does not know the batch size", hint=hint))
    if parameters.get("clip_global_norm") is not None:
        hint = "scale the gradients before the updates"
        raise UserError(Diagnostic("an updater sees one gradient at a time", hint=hint))
    rule_type, has_rate = OPTIMIZERS.get(name.lower()), "learning_rate" in parameters
    rule, problems = check(
        rule_type, {_FIELDS.get(key, key): value for key, value in parameters.items()}
    )
    if rule is None:
        raise UserError(map(_in_mxnets_names, problems))
    if lr_scheduler is not None and has_rate and hasattr(lr_scheduler, "base_lr"):
        lr_scheduler.base_lr = rule.lr
    return ImperativeOptimizer(name.lower(), rule, lr_scheduler, param_idx2name, begin_num_update)


def _in_mxnets_names(diagnostic: Diagnostic) -> Diagnostic:
    problem = diagnostic.problem
    for mxnet, field in _FIELDS.items():
        problem = problem.replace(repr(field), repr(mxnet))
    return replace(diagnostic, problem=problem)
