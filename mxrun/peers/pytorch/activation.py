"""Activation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    # log(1 + exp(x)) at full precision; functional.softplus is linear above 20.
    "softrelu": lambda data: torch.logaddexp(data, torch.zeros_like(data)),
    "softsign": functional.softsign,
}


def activation(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Apply the elementwise function that `act_type` names."""
    return ACTIVATIONS[parameters.text("act_type", "")](data)


OPERATORS: Operators = {
    "Activation": activation,
}
