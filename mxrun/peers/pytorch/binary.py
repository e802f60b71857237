"""Binary elementwise operators: of one shape, with broadcasting, and with a scalar."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mxrun.peers.pytorch.broadcast import broadcasting
from mxrun.peers.pytorch.elementwise import of_one_shape
from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor

Pair = Callable[[Tensor, Tensor], Tensor]


def _maximum(x: Tensor, y: Tensor) -> Tensor:
    """Return the larger; if equal x, which then gets the gradient."""
    return torch.where(x >= y, x, y)


def _minimum(x: Tensor, y: Tensor) -> Tensor:
    """Return the smaller; if equal x, which then gets the gradient."""
    return torch.where(x <= y, x, y)


def _mod(x: Tensor, y: Tensor) -> Tensor:
    """Return the remainder with the divisor's sign; 0 for a division by 0."""
    return torch.where(y == 0, torch.zeros_like(x), torch.remainder(x, y))


def _truth(function: Pair) -> Pair:
    """Convert a comparison to 1 and 0 in the operands' dtype, with zero gradients."""

    def apply(x: Tensor, y: Tensor) -> Tensor:
        return function(x, y).to(x.dtype) + 0 * (x + y)

    return apply


MAPS: dict[str, Pair] = {
    "maximum": _maximum,
    "minimum": _minimum,
    "power": torch.pow,
    "hypot": torch.hypot,
    "mod": _mod,
    "equal": _truth(torch.eq),
    "not_equal": _truth(torch.ne),
    "greater": _truth(torch.gt),
    "greater_equal": _truth(torch.ge),
    "lesser": _truth(torch.lt),
    "lesser_equal": _truth(torch.le),
    "logical_and": _truth(torch.logical_and),
    "logical_or": _truth(torch.logical_or),
    "logical_xor": _truth(torch.logical_xor),
}


def _with_scalar(function: Pair, *, is_first: bool = False) -> Callable[..., Tensor]:
    """Convert a binary function to one of a tensor and the parameter `scalar`.

    is_first: the scalar is the first operand.
    """

    def apply(parameters: MXNetParameters, data: Tensor) -> Tensor:
        number = torch.full((), parameters.number("scalar", 1.0), dtype=data.dtype)
        return function(number, data) if is_first else function(data, number)

    return apply


OPERATORS: Operators = {
    **{f"_{name}": of_one_shape(function) for name, function in MAPS.items()},
    **{f"broadcast_{name}": broadcasting(function) for name, function in MAPS.items()},
    **{
        f"_{name}_scalar": _with_scalar(function)
        for name, function in MAPS.items()
        if name != "power"
    },
    "_rpower_scalar": _with_scalar(torch.pow, is_first=True),
    "_rmod_scalar": _with_scalar(_mod, is_first=True),
}
