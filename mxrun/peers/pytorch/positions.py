"""position_embedding and rotary_embedding."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor

_BASE = 10000.0


def position_embedding(
    parameters: MXNetParameters, data: Tensor, weight: Tensor, position: Tensor = None
) -> Tensor:
    """Return data plus one row of the weight for each position."""
    del parameters
    first = _first(position)
    return data + weight[first : first + data.shape[1]]


def _first(position: Tensor) -> int:
    return 0 if position is None else int(position[0])


class PositionEmbeddingModule(nn.Module):
    """Sum of data and one row of the weight for each position."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, data: Tensor) -> Tensor:
        """Return the sum, [batch, positions, channels]."""
        return data + self.weight[: data.shape[1]]


def position_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    del parameters
    return PositionEmbeddingModule(tensors[0])


def rotary_embedding(parameters: MXNetParameters, data: Tensor, position: Tensor = None) -> Tensor:
    """Rotate the pairs (i, i + D / 2) of the first `rotated_heads` heads."""
    heads = int(parameters.number("num_heads", 1))
    text = parameters.text("rotated_heads", "None")
    rotated = heads if text == "None" else int(text)
    batch, positions, channels = data.shape
    width = channels // heads
    steps = _first(position) + torch.arange(positions, dtype=torch.float64)
    slopes = parameters.number("base", _BASE) ** (
        -torch.arange(0, width, 2, dtype=torch.float64) / width
    )
    angles = (steps[:, None] * slopes)[:, None, :]
    cosine, sine = angles.cos().to(data.dtype), angles.sin().to(data.dtype)
    turned, others = data.reshape(batch, positions, heads, width).split(
        [rotated, heads - rotated], dim=2
    )
    x, y = turned.chunk(2, dim=-1)
    turned = torch.cat([x * cosine - y * sine, y * cosine + x * sine], dim=-1)
    return torch.cat([turned, others], dim=2).reshape(data.shape)


OPERATORS: Operators = {
    "position_embedding": position_embedding,
    "rotary_embedding": rotary_embedding,
}
MODULES: Modules = {"position_embedding": position_module}
