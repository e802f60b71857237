"""Optimizer updates."""

from __future__ import annotations

import math

from mxrun.peers.pytorch.parameters import Operators, Parameters, Tensor


def _step(parameters: Parameters, weight: Tensor, gradient: Tensor) -> Tensor:
    """lr · (clip(rescale_grad · gradient) + wd · weight)."""
    rescaled = gradient * parameters.number("rescale_grad", 1.0)
    bound = parameters.number("clip_gradient", -1.0)
    if bound >= 0:  # MXNet's text says > 0, its code clips to zero at 0.
        rescaled = rescaled.clamp(-bound, bound)
    return parameters.number("lr", math.nan) * (rescaled + parameters.number("wd", 0.0) * weight)


def sgd_update(parameters: Parameters, weight: Tensor, gradient: Tensor) -> Tensor:
    """The new weight."""
    return weight - _step(parameters, weight, gradient)


def sgd_mom_update(
    parameters: Parameters, weight: Tensor, gradient: Tensor, momentum: Tensor
) -> Tensor:
    """The new weight; the momentum is changed where it lies."""
    momentum.mul_(parameters.number("momentum", 0.0)).sub_(_step(parameters, weight, gradient))
    return weight + momentum


OPERATORS: Operators = {
    "sgd_mom_update": sgd_mom_update,
    "sgd_update": sgd_update,
}
# Inputs that an operator writes.
AUXILIARY_INPUTS: dict[str, tuple[int, ...]] = {"sgd_mom_update": (2,)}
