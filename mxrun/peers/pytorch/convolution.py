"""Convolution."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch.module import adopt
from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor


def convolution(parameters: MXNetParameters, data: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
    """Compute the cross-correlation over 1, 2 or 3 spatial axes, NCHW and OIHW."""
    if parameters.text("layout", "None") not in ("None", "NCW", "NCHW", "NCDHW"):
        raise ValueError("only channels-first convolutions are supported")
    rank = data.dim() - 2
    apply = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[rank]
    return apply(
        data,
        weight,
        bias[0] if bias else None,
        parameters.shape("stride", (1,) * rank),
        parameters.shape("pad", (0,) * rank),
        parameters.shape("dilate", (1,) * rank),
        int(parameters.number("num_group", 1)),
    )


def convolution_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    spatial = tensors[0].dim() - 2
    groups = int(parameters.number("num_group", 1))
    channels = tensors[0].shape[1] * groups, tensors[0].shape[0]
    ones, zeros = (1,) * spatial, (0,) * spatial
    return adopt(
        {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[spatial],
        (*channels, parameters.shape("kernel", ones)),
        tensors,
        stride=parameters.shape("stride", ones),
        padding=parameters.shape("pad", zeros),
        dilation=parameters.shape("dilate", ones),
        groups=groups,
    )


OPERATORS: Operators = {
    "Convolution": convolution,
}
MODULES: Modules = {"Convolution": convolution_module}
