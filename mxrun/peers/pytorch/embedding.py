"""Embedding."""

from __future__ import annotations

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def embedding(parameters: MXNetParameters, data: Tensor, weight: Tensor) -> Tensor:
    """Look up rows by index; as in MXNet, indices out of range are clamped."""
    del parameters
    return torch.nn.functional.embedding(data.long().clamp(0, weight.shape[0] - 1), weight)


OPERATORS: Operators = {
    "Embedding": embedding,
}
