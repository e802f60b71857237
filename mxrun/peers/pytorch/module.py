"""Modules of any operator: its reference function, or a library module with given tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from mxrun.peers.pytorch.parameters import MXNetParameters, Tensor


class ReferenceModule(nn.Module):
    """Module that calls an operator's reference function."""

    def __init__(self, function: Callable[..., Any], parameters: MXNetParameters) -> None:
        super().__init__()
        self.function, self.parameters_of_operator = function, parameters

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs as a tuple."""
        result = self.function(self.parameters_of_operator, *tensors)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def adopt(kind: Any, sizes: tuple[Any, ...], tensors: list[Tensor], **keywords: Any) -> Any:
    """Create a module with the given weight and optional bias."""
    module = kind(*sizes, bias=len(tensors) > 1, device="meta", **keywords)
    module.weight = tensors[0]
    if len(tensors) > 1:
        module.bias = tensors[1]
    return module
