"""add_n."""

from __future__ import annotations

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def add_n(parameters: MXNetParameters, *data: Tensor) -> Tensor:
    """Return the sum, added from the left."""
    del parameters
    total = data[0]
    for addend in data[1:]:
        total = total + addend
    return total


OPERATORS: Operators = {
    "add_n": add_n,
}
