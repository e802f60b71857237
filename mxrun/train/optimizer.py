"""Update rules of the trained parameters: an optimizer with the multipliers of each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mxrun.graph.update_rule import UpdateRule
from mxrun.operator.optimizer import Optimizer, bound_of

# Parameters with these suffixes are not decayed. MXNet 1.9.1 (Optimizer.set_wd_mult) decays only
# names that end in _weight or _gamma; here every other name is decayed, and a gamma is not.
_NOT_DECAYED = ("_bias", "_gamma", "_beta")


@dataclass(frozen=True)
class Multipliers:
    """A parameter's own factors of the learning rate and of the weight decay.

    A decay of None means the default: 0 for biases, gammas and betas, else 1.
    """

    learning_rate: float = 1.0
    weight_decay: float | None = None


def update_rule(optimizer: Optimizer, parameter_name: str, multipliers: Multipliers) -> UpdateRule:
    """Return the update of one parameter."""
    operator, parameters = optimizer.operator()
    decay = multipliers.weight_decay
    if decay is None:
        decay = 0.0 if parameter_name.endswith(_NOT_DECAYED) else 1.0
    common = {
        **optimizer.rates(multipliers.learning_rate),
        "wd": optimizer.wd * decay,
        "clip_gradient": bound_of(optimizer.clip_gradient),
        "scheduled": True,
        "scaled": True,
    }
    return UpdateRule(operator, {**common, **parameters})


def update_rules(optimizer: Optimizer, trained: Mapping[str, Multipliers]) -> dict[str, UpdateRule]:
    """Return the update of each trained parameter, in the given order."""
    return {
        name: update_rule(optimizer, name, multipliers) for name, multipliers in trained.items()
    }
