"""Convolution."""

from __future__ import annotations

from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


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


OPERATORS: Operators = {
    "Convolution": convolution,
}
