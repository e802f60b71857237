"""Concat."""

from __future__ import annotations

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def concat(parameters: MXNetParameters, *data: Tensor) -> Tensor:
    """Concatenate tensors along one axis."""
    return torch.cat(data, int(parameters.number("dim", 1)))


OPERATORS: Operators = {
    "Concat": concat,
}
