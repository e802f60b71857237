"""Update rules of parameters, and the names of the tensors that updates keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class UpdateRule:
    """The update operator of one parameter, with its parameters (rates, decay, ...).

    Its arguments are the weight, its gradient, states named after the weight (`fc1_weight:mom`),
    `gradient_scale` where all gradients are clipped together, and `schedule`, the step's rates.
    """

    operator: str
    parameters: Mapping[str, object]


@dataclass(frozen=True)
class Clipping:
    """Clip all gradients together: the norm of all of them, rescaled, is at most `max_norm`."""

    max_norm: float
    rescale_grad: float


# The step's learning rate and the two bias corrections of Adam and its kind.
SCHEDULE = "optimizer:schedule"


def accumulated(parameter: str) -> str:
    """The name of the tensor that sums a parameter's gradients over several batches."""
    return f"{parameter}:grad"


def averaged(parameter: str) -> str:
    """The name of the moving average of a parameter."""
    return f"{parameter}:average"
