"""Unary elementwise operators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def _cbrt(data: Tensor) -> Tensor:
    return torch.sign(data) * torch.abs(data) ** (1 / 3)


def _constant(value: Tensor, data: Tensor) -> Tensor:
    """Return a value with a zero gradient with respect to data, where PyTorch has none."""
    return value.to(data.dtype) + 0 * data


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "_copy": torch.clone,
    "abs": torch.abs,
    "arccos": torch.arccos,
    "arccosh": torch.arccosh,
    "arcsin": torch.arcsin,
    "arcsinh": torch.arcsinh,
    "arctan": torch.arctan,
    "arctanh": torch.arctanh,
    "cbrt": _cbrt,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "degrees": torch.rad2deg,
    "erf": torch.erf,
    "erfinv": torch.erfinv,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "fix": torch.fix,
    "floor": torch.floor,
    # The sign of gamma alternates below 0.
    "gamma": lambda data: (
        torch.exp(torch.lgamma(data))
        * torch.where((data < 0) & (torch.floor(data) % 2 != 0), -1.0, 1.0)
    ),
    "gammaln": torch.lgamma,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "logical_not": lambda data: _constant(torch.logical_not(data), data),
    "negative": torch.neg,
    "ones_like": lambda data: _constant(torch.ones_like(data), data),
    "radians": torch.deg2rad,
    "rcbrt": lambda data: 1 / _cbrt(data),
    "reciprocal": torch.reciprocal,
    "relu": torch.relu,
    # Ties are rounded down; torch.round takes the even number.
    "rint": lambda data: torch.ceil(data - 0.5),
    "round": lambda data: torch.sign(data) * torch.floor(torch.abs(data) + 0.5),
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "sign": torch.sign,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "softsign": functional.softsign,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
    "zeros_like": lambda data: _constant(torch.zeros_like(data), data),
}


def _of_data(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Convert a unary function to an operator without parameters."""

    def apply(parameters: MXNetParameters, data: Tensor) -> Tensor:
        return function(data)

    return apply


def hard_sigmoid(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Compute a linear function clipped to [0, 1]."""
    alpha, beta = parameters.number("alpha", 0.2), parameters.number("beta", 0.5)
    return torch.clamp(alpha * data + beta, 0, 1)


OPERATORS: Operators = {
    **{name: _of_data(function) for name, function in FUNCTIONS.items()},
    "hard_sigmoid": hard_sigmoid,
}
