"""argmax, argmin and cumulative sums."""

from __future__ import annotations

import ast
from collections.abc import Callable

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def _index(function: Callable[..., Tensor], default: str = "None") -> Callable[..., Tensor]:
    """Return indices as numbers of data's dtype, with a gradient of zero."""

    def apply(parameters: MXNetParameters, data: Tensor) -> Tensor:
        axis = ast.literal_eval(parameters.text("axis", default))
        keep = parameters.flag("keepdims", False)
        found = function(data, dim=axis, keepdim=keep and axis is not None)
        if axis is None:
            found = found.reshape([1] * data.dim() if keep else [1])
        found = found if found.dim() else found[None]
        return found.to(data.dtype) + 0 * data.sum()

    return apply


def _cumsum(parameters: MXNetParameters, data: Tensor) -> Tensor:
    axis = ast.literal_eval(parameters.text("axis", "None"))
    return data.flatten().cumsum(0) if axis is None else data.cumsum(axis)


OPERATORS: Operators = {
    "argmax": _index(torch.argmax),
    "argmax_channel": _index(torch.argmax, default="1"),
    "argmin": _index(torch.argmin),
    "cumsum": _cumsum,
}
