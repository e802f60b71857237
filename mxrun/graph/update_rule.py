"""Update rules of parameters, and the names of optimizer tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class UpdateRule:
    """Update operator of one parameter, with the operator's parameters (rates, decay, ...).

    Its arguments are the weight, its gradient, states named after the weight (`fc1_weight:mom`),
    `gradient_scale`, the step's factor of the gradient, and `schedule`, the step's rates.
    """

    operator: str
    parameters: Mapping[str, object]


@dataclass(frozen=True)
class Clipping:
    """Clipping of all gradients together: their global norm, rescaled, is at most `max_norm`."""

    max_norm: float


# Tensor with the step's learning rate and the two bias corrections of Adam-like optimizers.
SCHEDULE = "optimizer:schedule"
# Tensor with the step's factor of every gradient.
GRADIENT_SCALE = "optimizer:gradient_scale"


def accumulated(parameter: str) -> str:
    """Return the name of the tensor that sums a parameter's gradients over several batches."""
    return f"{parameter}:grad"


def averaged(parameter: str) -> str:
    """Return the name of the moving average of a parameter."""
    return f"{parameter}:average"
