"""Arithmetic with a scalar, and clipping."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def _with_scalar(function: Callable[[Tensor, float], Tensor]) -> Callable[..., Tensor]:
    """Convert a binary function to one of a tensor and the parameter `scalar`."""

    def apply(parameters: MXNetParameters, data: Tensor) -> Tensor:
        return function(data, parameters.number("scalar", 1.0))

    return apply


def clip(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Clip data to [a_min, a_max]."""
    low, high = (parameters.number(name, math.nan) for name in ("a_min", "a_max"))
    return torch.clamp(data, low, high)


OPERATORS: Operators = {
    "_div_scalar": _with_scalar(lambda data, scalar: data / scalar),
    "_minus_scalar": _with_scalar(lambda data, scalar: data - scalar),
    "_mul_scalar": _with_scalar(lambda data, scalar: data * scalar),
    "_plus_scalar": _with_scalar(lambda data, scalar: data + scalar),
    "_power_scalar": _with_scalar(lambda data, scalar: data**scalar),
    "_rdiv_scalar": _with_scalar(lambda data, scalar: scalar / data),
    "_rminus_scalar": _with_scalar(lambda data, scalar: scalar - data),
    "clip": clip,
}
