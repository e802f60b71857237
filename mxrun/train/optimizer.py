"""Optimisers: conversion of a config's choice to one update operator per trained parameter.

The updates themselves are operators of the graph (`sgd_update`, `adam_update`, ...). Values that
change from step to step are not among their parameters: the loop writes them to the tensor
`schedule` before each step: the learning rate, then the optimiser's two corrections. The operators'
`lr` is the parameter's multiplier, so rate = lr * schedule[0].
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, model_validator

from mxrun.base.params import NotNegative, Parameters, Positive
from mxrun.base.registry import Registry
from mxrun.graph.update_rule import UpdateRule

# Parameters with these suffixes are not decayed. MXNet 1.9.1 (Optimizer.set_wd_mult) decays only
# names that end in _weight or _gamma; here every other name is decayed, and a gamma is not.
_NOT_DECAYED = ("_bias", "_gamma", "_beta")
# MXNet's value for no bound.
_NO_BOUND = -1.0

# Decay factor of a moving average or of momentum.
Fraction = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class Multipliers:
    """A parameter's own factors of the learning rate and of the weight decay.

    A decay of None means the default: 0 for biases, gammas and betas, else 1.
    """

    learning_rate: float = 1.0
    weight_decay: float | None = None


class Optimizer(Parameters):
    """Base of optimisers: learning rate, weight decay and treatment of gradients."""

    lr: NotNegative = Field(0.01, description="The learning rate.")
    wd: NotNegative = Field(0.0, description="Weight decay; not on biases, gammas and betas.")
    rescale_grad: Positive | None = Field(
        None, description="Factor of every gradient; default: 1 / batch size."
    )
    clip_gradient: Positive | None = Field(
        None, description="Gradients are clipped to [-x, x]; default: not at all."
    )
    clip_global_norm: Positive | None = Field(
        None,
        description="Upper bound on the norm of all rescaled gradients together; if it is larger, "
        "all are scaled down to it; default: none.",
    )

    @abstractmethod
    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return the update operator's name and the parameters specific to this optimiser."""

    def corrections(self, step: int) -> tuple[float, float]:
        """Return the divisors of the two moments in update `step`, counted from 1; 1 for none."""
        return 1.0, 1.0

    def rates(self, multiplier: float) -> Mapping[str, float]:
        """Return the operator's factors of the scheduled rate for a parameter's multiplier."""
        return {"lr": multiplier}

    def rule(self, parameter_name: str, multipliers: Multipliers, batch_size: int) -> UpdateRule:
        """Return the update of one parameter."""
        operator, parameters = self.operator()
        decay = multipliers.weight_decay
        if decay is None:
            decay = 0.0 if parameter_name.endswith(_NOT_DECAYED) else 1.0
        rescale = 1 / batch_size if self.rescale_grad is None else self.rescale_grad
        common = {
            **self.rates(multipliers.learning_rate),
            "wd": self.wd * decay,
            "rescale_grad": rescale,
            "clip_gradient": _bound(self.clip_gradient),
            "scheduled": True,
            "scaled": self.clip_global_norm is not None,
        }
        return UpdateRule(operator, {**common, **parameters})


def _bound(limit: float | None) -> float:
    return _NO_BOUND if limit is None else limit


class Sgd(Optimizer):
    """Stochastic gradient descent; with momentum, the last step is stored in a state `mom`."""

    momentum: Fraction = Field(0.0, description="Momentum: the factor of the last step.")

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `sgd_mom_update`, or without momentum the stateless `sgd_update`."""
        if self.momentum == 0:
            return "sgd_update", {}
        return "sgd_mom_update", {"momentum": self.momentum}


class Nag(Sgd):
    """Nesterov's accelerated gradient; without momentum it is stochastic gradient descent."""

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `nag_mom_update`, or without momentum the stateless `sgd_update`."""
        name, parameters = super().operator()
        return ("nag_mom_update" if parameters else name), parameters


class Signum(Optimizer):
    """Steps by the sign of the averaged gradient; without momentum, of the gradient itself."""

    momentum: Fraction = Field(0.9, description="Decay factor of the gradient's moving average.")
    wd_lh: NotNegative = Field(
        0.0, description="Weight decay outside of the sign; requires momentum."
    )

    @model_validator(mode="after")
    def _decay_needs_momentum(self) -> Signum:
        if self.wd_lh and not self.momentum:
            raise ValueError("wd_lh requires momentum; without momentum, wd has the same effect")
        return self

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `signum_update`, or without momentum the stateless `signsgd_update`."""
        if self.momentum == 0:
            return "signsgd_update", {}
        return "signum_update", {"momentum": self.momentum, "wd_lh": self.wd_lh}


class Adam(Optimizer):
    """Steps by moving averages of the gradient and of its square (Kingma and Ba, arXiv 1412.6980).

    As in MXNet, decay is added to the gradient, and epsilon is added before the bias correction.
    """

    lr: NotNegative = Field(0.001, description="The learning rate.")
    beta1: Fraction = Field(0.9, description="Decay factor of the gradient's moving average.")
    beta2: Fraction = Field(
        0.999, description="Decay factor of the squared gradient's moving average."
    )
    epsilon: Positive = Field(
        1e-8, description="Added to the root of the squared gradient's moving average."
    )

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `adam_update`."""
        return "adam_update", self._moments()

    def corrections(self, step: int) -> tuple[float, float]:
        """Return 1 - beta1^step and 1 - beta2^step."""
        return 1 - self.beta1**step, 1 - self.beta2**step

    def _moments(self) -> Mapping[str, object]:
        return {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}


class AdamW(Adam):
    """Adam with decoupled weight decay: every step subtracts rate * wd * weight from the weight.

    The decay follows the schedule and the parameter's learning-rate multiplier (Loshchilov and
    Hutter, arXiv 1711.05101, with the rate as the schedule's multiplier; PyTorch's AdamW).
    """

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `adamw_update`."""
        return "adamw_update", self._moments()

    def rates(self, multiplier: float) -> Mapping[str, float]:
        """Return the factors with the multiplier in `eta`, which scales step and decay."""
        return {"lr": 1.0, "eta": multiplier}


class Lamb(Adam):
    """Adam with steps scaled to the norm of the weight (You et al., arXiv 1904.00962)."""

    epsilon: Positive = Field(
        1e-6, description="Added to the root of the squared gradient's moving average."
    )
    lower_bound: Positive | None = Field(
        None, description="Lower bound on the norm of a weight; default: none."
    )
    upper_bound: Positive | None = Field(
        None, description="Upper bound on the norm of a weight; default: none."
    )
    bias_correction: bool = Field(
        True, description="Whether the bias of the moving averages' start at 0 is corrected."
    )

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `lamb_update`."""
        bounds = {
            "lower_bound": _bound(self.lower_bound),
            "upper_bound": _bound(self.upper_bound),
        }
        return "lamb_update", {**self._moments(), **bounds}

    def corrections(self, step: int) -> tuple[float, float]:
        """Return Adam's corrections, or 1 without bias correction."""
        return super().corrections(step) if self.bias_correction else (1.0, 1.0)


class AdaGrad(Optimizer):
    """Steps divided by the root of the sum of squared gradients (Duchi, Hazan, Singer, 2011)."""

    epsilon: Positive = Field(1e-7, description="Added to the sum of squares, under the root.")

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `adagrad_update`."""
        return "adagrad_update", {"epsilon": self.epsilon}


class RMSProp(Optimizer):
    """Steps divided by the root of the squared gradients' average (Tieleman and Hinton, 2012).

    The centered form subtracts the squared average gradient and has momentum (Graves, arXiv
    1308.0850).
    """

    lr: NotNegative = Field(0.001, description="The learning rate.")
    gamma1: Fraction = Field(0.9, description="Decay factor of the moving averages.")
    gamma2: Fraction = Field(0.9, description="Momentum: the factor of the last step, if centered.")
    epsilon: Positive = Field(1e-8, description="Added to the average of squares, under the root.")
    centered: bool = Field(False, description="Whether Graves's centered form is used.")
    clip_weights: Positive | None = Field(
        None, description="Weights are clipped to [-x, x]; default: not at all."
    )

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `rmsprop_update`, or `rmspropalex_update` if centered."""
        parameters = {
            "gamma1": self.gamma1,
            "epsilon": self.epsilon,
            "clip_weights": _bound(self.clip_weights),
        }
        if self.centered:
            return "rmspropalex_update", {**parameters, "gamma2": self.gamma2}
        return "rmsprop_update", parameters


class Ftrl(Optimizer):
    """Follow the regularised leader; yields sparse weights (McMahan et al., KDD 2013)."""

    lr: NotNegative = Field(0.1, description="The learning rate.")
    lamda1: NotNegative = Field(0.01, description="Strength of the L1 regularisation.")
    beta: NotNegative = Field(1.0, description="Added to the root of the sum of squares.")

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `ftrl_update`."""
        return "ftrl_update", {"lamda1": self.lamda1, "beta": self.beta}


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer")
OPTIMIZERS.add("sgd", Sgd)
OPTIMIZERS.add("nag", Nag)
OPTIMIZERS.add("signum", Signum)
OPTIMIZERS.add("adam", Adam)
OPTIMIZERS.add("adamw", AdamW)
OPTIMIZERS.add("lamb", Lamb)
OPTIMIZERS.add("adagrad", AdaGrad)
OPTIMIZERS.add("rmsprop", RMSProp)
OPTIMIZERS.add("ftrl", Ftrl)


def update_rules(
    optimizer: Optimizer, trained: Mapping[str, Multipliers], batch_size: int
) -> dict[str, UpdateRule]:
    """Return the update of each trained parameter, in the given order.

    `batch_size` is the number of samples whose gradients are summed in one update.
    """
    return {
        name: optimizer.rule(name, multipliers, batch_size) for name, multipliers in trained.items()
    }
