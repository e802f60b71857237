"""Deconvolution."""

from __future__ import annotations

from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def deconvolution(
    parameters: MXNetParameters, data: Tensor, weight: Tensor, *bias: Tensor
) -> Tensor:
    """Compute the transposed convolution over 1 to 3 axes; weight [in, out / groups, ...]."""
    if parameters.text("layout", "None") not in ("None", "NCW", "NCHW", "NCDHW"):
        raise ValueError("only channels-first convolutions are supported")
    rank = data.dim() - 2
    ones, zeros = (1,) * rank, (0,) * rank
    stride, dilate = parameters.shape("stride", ones), parameters.shape("dilate", ones)
    pad, adj = parameters.shape("pad", zeros), parameters.shape("adj", zeros)
    wanted = parameters.shape("target_shape", zeros)
    if any(wanted):
        spare = [
            s * (size - 1) + d * (k - 1) + 1 - out
            for s, size, d, k, out in zip(
                stride, data.shape[2:], dilate, weight.shape[2:], wanted, strict=True
            )
        ]
        pad, adj = tuple((x + 1) // 2 for x in spare), tuple(x % 2 for x in spare)
    apply = {
        1: functional.conv_transpose1d,
        2: functional.conv_transpose2d,
        3: functional.conv_transpose3d,
    }[rank]
    groups = int(parameters.number("num_group", 1))
    # PyTorch limits output_padding by stride or dilation, MXNet limits adj by stride.
    return apply(data, weight, bias[0] if bias else None, stride, pad, adj, groups, dilate)


OPERATORS: Operators = {
    "Deconvolution": deconvolution,
}
