"""Flatten."""

from __future__ import annotations

from typing import Any

from torch import nn

from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor


def flatten(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Merge all axes but the first."""
    del parameters
    return data.flatten(1)


def flatten_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    del parameters, tensors
    return nn.Flatten()


OPERATORS: Operators = {
    "Flatten": flatten,
}
MODULES: Modules = {"Flatten": flatten_module}
