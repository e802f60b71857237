"""LayerNorm and RMSNorm."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor


def layer_norm(
    parameters: MXNetParameters, data: Tensor, gamma: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output, the mean and the deviation; the latter two pass no gradient."""
    axis, eps = int(parameters.number("axis", -1)), parameters.number("eps", 1e-5)
    moved = data.movedim(axis, -1)
    output = nn.functional.layer_norm(moved, moved.shape[-1:], gamma, beta, eps)
    var, mean = torch.var_mean(data, (axis,), correction=0, keepdim=True)
    # The zero lets autograd differentiate them.
    zero = 0 * beta.sum()
    return output.movedim(-1, axis), mean.detach() + zero, (var + eps).sqrt().detach() + zero


def rms_norm(parameters: MXNetParameters, data: Tensor, gamma: Tensor) -> Tensor:
    """Return the output."""
    axis, eps = int(parameters.number("axis", -1)), parameters.number("eps", 1e-5)
    moved = data.movedim(axis, -1)
    return nn.functional.rms_norm(moved, moved.shape[-1:], gamma, eps).movedim(-1, axis)


def layer_norm_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    return _module(nn.LayerNorm, parameters, tensors)


def rms_norm_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    return _module(nn.RMSNorm, parameters, tensors)


def _module(kind: Any, parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    """Return the module with these tensors; None unless it normalises the last axis."""
    if int(parameters.number("axis", -1)) != -1:
        return None
    module = kind(len(tensors[0]), eps=parameters.number("eps", 1e-5), device="meta")
    module.weight = tensors[0]
    if len(tensors) > 1:
        module.bias = tensors[1]
    return module


OPERATORS: Operators = {"LayerNorm": layer_norm, "RMSNorm": rms_norm}
MODULES: Modules = {"LayerNorm": layer_norm_module, "RMSNorm": rms_norm_module}
