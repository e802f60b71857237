"""LeakyReLU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def _leaky(parameters: MXNetParameters, data: Tensor) -> Tensor:
    return torch.where(data > 0, data, parameters.number("slope", 0.25) * data)


def _elu(parameters: MXNetParameters, data: Tensor) -> Tensor:
    slope = parameters.number("slope", 0.25)
    return torch.where(data > 0, data, slope * torch.expm1(data.clamp(max=0)))


def _selu(parameters: MXNetParameters, data: Tensor) -> Tensor:
    del parameters
    return functional.selu(data)


def _gelu(parameters: MXNetParameters, data: Tensor) -> Tensor:
    del parameters
    return functional.gelu(data)


def _prelu(parameters: MXNetParameters, data: Tensor, gamma: Tensor) -> Tensor:
    del parameters
    return functional.prelu(data, gamma)


def _rrelu(parameters: MXNetParameters, data: Tensor) -> Tensor:
    bounds = parameters.number("lower_bound", 0.125), parameters.number("upper_bound", 0.334)
    return functional.rrelu(data, *bounds, training=parameters.is_train)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "elu": _elu,
    "gelu": _gelu,
    "leaky": _leaky,
    "prelu": _prelu,
    "rrelu": _rrelu,
    "selu": _selu,
}


def leaky_relu(parameters: MXNetParameters, data: Tensor, *gamma: Tensor) -> Tensor:
    """Apply the rectifier that `act_type` names."""
    return FUNCTIONS[parameters.text("act_type", "leaky")](parameters, data, *gamma)


OPERATORS: Operators = {
    "LeakyReLU": leaky_relu,
}
