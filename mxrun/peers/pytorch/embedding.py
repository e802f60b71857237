"""Embedding."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor


def embedding(parameters: MXNetParameters, data: Tensor, weight: Tensor) -> Tensor:
    """Look up rows by index; as in MXNet, indices out of range are clamped."""
    del parameters
    return functional.embedding(data.long().clamp(0, weight.shape[0] - 1), weight)


class EmbeddingModule(nn.Module):
    """Lookup of rows by index."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, data: Tensor) -> Tensor:
        """Return [..., columns]; every index must be that of a row."""
        return functional.embedding(data.long(), self.weight)


def embedding_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    del parameters
    return EmbeddingModule(tensors[0])


OPERATORS: Operators = {
    "Embedding": embedding,
}
MODULES: Modules = {"Embedding": embedding_module}
