"""Operators that only move elements."""

from __future__ import annotations

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def flatten(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """All axes but the first become one."""
    del parameters
    return data.flatten(1)


OPERATORS: Operators = {
    "Flatten": flatten,
}
