"""softmax_cross_entropy."""

from __future__ import annotations

from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def softmax_cross_entropy(parameters: MXNetParameters, data: Tensor, label: Tensor) -> Tensor:
    """Return the cross-entropy summed over rows, as a tensor of one element."""
    del parameters
    return functional.cross_entropy(data, label.long(), reduction="sum")[None]


OPERATORS: Operators = {"softmax_cross_entropy": softmax_cross_entropy}
