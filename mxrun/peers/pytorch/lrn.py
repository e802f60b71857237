"""LRN."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def lrn(parameters: MXNetParameters, data: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and the norm; an even window size is reduced by one."""
    size = int(parameters.number("nsize", math.nan))
    reach = (size - 1) // 2
    padded = functional.pad(data.square(), (0, 0, 0, 0, reach, reach))
    total = padded.unfold(1, 2 * reach + 1, 1).sum(-1)
    weight = parameters.number("alpha", 1e-4) / size
    norm = parameters.number("knorm", 2.0) + weight * total
    return data * torch.pow(norm, -parameters.number("beta", 0.75)), norm


OPERATORS: Operators = {
    "LRN": lrn,
}
