"""Arithmetic with broadcasting, by the same rules as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

from mxrun.peers.pytorch.elementwise import ARITHMETIC
from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def broadcasting(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Convert a binary function to an operator."""

    def apply(parameters: MXNetParameters, lhs: Tensor, rhs: Tensor) -> Tensor:
        del parameters
        return function(lhs, rhs)

    return apply


OPERATORS: Operators = {
    f"broadcast_{name}": broadcasting(function) for name, function in ARITHMETIC.items()
}
