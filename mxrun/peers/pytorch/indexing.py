"""take, pick and one_hot."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def _within(parameters: MXNetParameters, indices: Tensor, size: int) -> Tensor:
    """Return indices inside [0, size)."""
    wraps = parameters.text("mode", "clip") == "wrap"
    return indices.long() % size if wraps else indices.long().clamp(0, size - 1)


def take(parameters: MXNetParameters, a: Tensor, indices: Tensor) -> Tensor:
    """Select slices, and give their axis the shape of the indices."""
    axis = int(parameters.number("axis", 0)) % a.dim()
    found = _within(parameters, indices, a.shape[axis])
    output = a.index_select(axis, found.reshape(-1))
    return output.reshape(*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :])


def pick(parameters: MXNetParameters, data: Tensor, index: Tensor) -> Tensor:
    """Gather one element along the axis."""
    axis = int(parameters.number("axis", -1)) % data.dim()
    shape = [1 if at == axis else size for at, size in enumerate(data.shape)]
    output = data.gather(axis, _within(parameters, index, data.shape[axis]).reshape(shape))
    if parameters.flag("keepdims", False) or data.dim() == 1:
        return output
    return output.squeeze(axis)


def one_hot(parameters: MXNetParameters, indices: Tensor) -> Tensor:
    """Mark the index; classes beyond the depth are cut off."""
    depth, given = int(parameters.number("depth", math.nan)), indices.long()
    inside = (given >= 0) & (given < depth)
    marked = functional.one_hot(torch.where(inside, given, depth), depth + 1)[..., :-1]
    on, off = parameters.number("on_value", 1.0), parameters.number("off_value", 0.0)
    return torch.where(marked == 1, on, off)


OPERATORS: Operators = {"take": take, "pick": pick, "one_hot": one_hot}
