"""FullyConnected."""

from __future__ import annotations

from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def fully_connected(
    parameters: MXNetParameters, data: Tensor, weight: Tensor, *bias: Tensor
) -> Tensor:
    """Compute data · weightᵀ + bias over all axes but the first, or over the last only."""
    flat = data.flatten(1) if parameters.flag("flatten", True) else data
    return functional.linear(flat, weight, bias[0] if bias else None)


OPERATORS: Operators = {
    "FullyConnected": fully_connected,
}
