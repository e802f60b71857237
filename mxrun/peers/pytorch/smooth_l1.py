"""smooth_l1."""

from __future__ import annotations

from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def smooth_l1(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Apply PyTorch's loss, whose `beta` is the beginning of the linear part."""
    beta = parameters.number("scalar", 1.0) ** -2
    return functional.smooth_l1_loss(data, data.new_zeros(()), reduction="none", beta=beta)


OPERATORS: Operators = {
    "smooth_l1": smooth_l1,
}
