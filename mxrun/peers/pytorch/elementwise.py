"""Elementwise arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor

ARITHMETIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}


def of_one_shape(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Convert a binary function to an operator that does not broadcast."""

    def apply(parameters: MXNetParameters, lhs: Tensor, rhs: Tensor) -> Tensor:
        del parameters
        if lhs.shape != rhs.shape:
            raise ValueError(f"elementwise of {tuple(lhs.shape)} and {tuple(rhs.shape)}")
        return function(lhs, rhs)

    return apply


OPERATORS: Operators = {
    f"elemwise_{name}": of_one_shape(function) for name, function in ARITHMETIC.items()
}
