"""Mean and variance."""

from __future__ import annotations

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def _moments(parameters: MXNetParameters, data: Tensor) -> tuple[Tensor, ...]:
    axes = parameters.shape("axes", ())
    keep = parameters.flag("keepdims", False)
    var, mean = torch.var_mean(data, dim=axes, correction=0, keepdim=keep)
    return tuple(value if value.dim() else value[None] for value in (mean, var))


OPERATORS: Operators = {"moments": _moments}
