"""Activation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    # log(1 + exp(x)) at full precision; functional.softplus is linear above 20.
    "softrelu": lambda data: torch.logaddexp(data, torch.zeros_like(data)),
    "softsign": functional.softsign,
}

ACTIVATION_MODULES: dict[str, Callable[[], Any]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "softrelu": nn.Softplus,
    "softsign": nn.Softsign,
}


def activation(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Apply the elementwise function that `act_type` names."""
    return ACTIVATIONS[parameters.text("act_type", "")](data)


def activation_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    del tensors
    make = ACTIVATION_MODULES.get(parameters.text("act_type", ""))
    return None if make is None else make()


OPERATORS: Operators = {
    "Activation": activation,
}
MODULES: Modules = {"Activation": activation_module}
