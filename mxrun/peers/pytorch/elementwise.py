"""Elementwise arithmetic."""

from __future__ import annotations

from mxrun.peers.pytorch.parameters import Operators, Parameters, Tensor


def elemwise_add(parameters: Parameters, lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs + rhs, of one shape."""
    del parameters
    if lhs.shape != rhs.shape:
        raise ValueError(f"elemwise_add of {tuple(lhs.shape)} and {tuple(rhs.shape)}")
    return lhs + rhs


OPERATORS: Operators = {
    "elemwise_add": elemwise_add,
}
