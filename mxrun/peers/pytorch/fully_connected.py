"""FullyConnected."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch.module import adopt
from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor

_FLATTENED_RANK = 2


def fully_connected(
    parameters: MXNetParameters, data: Tensor, weight: Tensor, *bias: Tensor
) -> Tensor:
    """Compute data · weightᵀ + bias over all axes but the first, or over the last only."""
    flat = data.flatten(1) if parameters.flag("flatten", True) else data
    return functional.linear(flat, weight, bias[0] if bias else None)


class Flat(nn.Module):
    """Module applied to flattened data.

    Data of rank 2 is not reshaped, to save time that idiomatic PyTorch code would not spend either.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, data: Tensor) -> Tensor:
        """Return the inner module's output."""
        return self.inner(data if data.dim() == _FLATTENED_RANK else data.flatten(1))


def fully_connected_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    weight = tensors[0]
    linear = adopt(nn.Linear, (weight.shape[1], weight.shape[0]), tensors)
    return Flat(linear) if parameters.flag("flatten", True) else linear


OPERATORS: Operators = {
    "FullyConnected": fully_connected,
}
MODULES: Modules = {"FullyConnected": fully_connected_module}
