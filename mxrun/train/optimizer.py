"""Optimisers: a config's choice becomes one update operator per trained parameter.

The updates themselves are operators of the graph (`sgd_update`, `sgd_mom_update`, ...). The step's
learning rate is not among their parameters: it lies in the tensor `schedule`, written by the loop
before each step; their `lr` is the parameter's multiplier, so rate = lr * schedule[0].
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from mxrun.base.params import NotNegative, Parameters, Positive
from mxrun.base.registry import Registry
from mxrun.graph.passes.updates import UpdateRule

# Parameters whose names end so are not decayed. MXNet 1.9.1 (Optimizer.set_wd_mult) decays only
# names that end in _weight or _gamma; here a variable of any other name is decayed, a gamma not.
_NOT_DECAYED = ("_bias", "_gamma", "_beta")
# MXNet's way to say that gradients are not clipped.
_NO_CLIPPING = -1.0


@dataclass(frozen=True)
class Multipliers:
    """A parameter's own factors of the learning rate and of the weight decay.

    A decay of None stands for the default: 0 for biases, gammas and betas, else 1.
    """

    learning_rate: float = 1.0
    weight_decay: float | None = None


class Optimizer(Parameters):
    """What every optimiser has: rate, decay and the treatment of gradients."""

    lr: NotNegative = Field(0.01, description="The learning rate.")
    wd: NotNegative = Field(0.0, description="Weight decay; not on biases, gammas and betas.")
    rescale_grad: Positive | None = Field(
        None, description="Factor of every gradient; default: 1 / batch size."
    )
    clip_gradient: Positive | None = Field(
        None, description="Gradients are clipped to [-x, x]; default: not at all."
    )

    @abstractmethod
    def operator(self) -> tuple[str, Mapping[str, object]]:
        """The update operator's name and the parameters that only this optimiser has."""

    def rule(self, parameter_name: str, multipliers: Multipliers, batch_size: int) -> UpdateRule:
        """The update of one parameter."""
        operator, own = self.operator()
        decay = multipliers.weight_decay
        if decay is None:
            decay = 0.0 if parameter_name.endswith(_NOT_DECAYED) else 1.0
        rescale = 1 / batch_size if self.rescale_grad is None else self.rescale_grad
        clip = _NO_CLIPPING if self.clip_gradient is None else self.clip_gradient
        common = {
            "lr": multipliers.learning_rate,
            "wd": self.wd * decay,
            "rescale_grad": rescale,
            "clip_gradient": clip,
            "scheduled": True,
        }
        return UpdateRule(operator, {**common, **own})


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer")


class Sgd(Optimizer):
    """Stochastic gradient descent; with momentum, the last step is kept in a state `mom`."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="How much of the last step is kept."
    )

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """`sgd_mom_update`, or without momentum `sgd_update`, which needs no state."""
        if self.momentum == 0:
            return "sgd_update", {}
        return "sgd_mom_update", {"momentum": self.momentum}


OPTIMIZERS.add("sgd", Sgd)


def update_rules(
    optimizer: Optimizer, trained: Mapping[str, Multipliers], batch_size: int
) -> dict[str, UpdateRule]:
    """The update of each trained parameter, in the given order.

    `batch_size` is the number of samples whose gradients are summed in one update.
    """
    return {
        name: optimizer.rule(name, multipliers, batch_size) for name, multipliers in trained.items()
    }
