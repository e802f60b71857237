"""Flatten."""

from __future__ import annotations

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def flatten(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Merge all axes but the first."""
    del parameters
    return data.flatten(1)


OPERATORS: Operators = {
    "Flatten": flatten,
}
