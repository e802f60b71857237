"""Reductions."""

from __future__ import annotations

import ast
from collections.abc import Callable

import torch

from mxrun.peers.pytorch.parameters import Operators, Parameters, Tensor


def _reducing(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """PyTorch's function over MXNet's axes; what is reduced to nothing has one element."""

    def apply(parameters: Parameters, data: Tensor) -> Tensor:
        given = ast.literal_eval(parameters.text("axis", "None"))
        axes = (given,) if isinstance(given, int) else tuple(given or range(data.dim()))
        if given and parameters.flag("exclude", False):
            chosen = {axis % data.dim() for axis in axes}
            axes = tuple(axis for axis in range(data.dim()) if axis not in chosen)
        keep = parameters.flag("keepdims", False)
        result = function(data, dim=axes, keepdim=keep) if axes else data * 1
        return result if result.dim() else result[None]

    return apply


OPERATORS: Operators = {
    "max": _reducing(torch.amax),
    "mean": _reducing(torch.mean),
    "sum": _reducing(torch.sum),
}
