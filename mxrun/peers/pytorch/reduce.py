"""Reductions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def _reducing(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Apply PyTorch's function over MXNet's axes; a complete reduction has shape (1,)."""

    def apply(parameters: MXNetParameters, data: Tensor) -> Tensor:
        given = ast.literal_eval(parameters.text("axis", "None"))
        axes = (given,) if isinstance(given, int) else tuple(given or range(data.dim()))
        if given and parameters.flag("exclude", False):
            chosen = {axis % data.dim() for axis in axes}
            axes = tuple(axis for axis in range(data.dim()) if axis not in chosen)
        keep = parameters.flag("keepdims", False)
        result = function(data, dim=axes, keepdim=keep) if axes else data * 1
        return result if result.dim() else result[None]

    return apply


def _product(data: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor:
    """Return the product over several axes, which PyTorch computes one axis at a time."""
    for axis in sorted((axis % data.dim() for axis in dim), reverse=True):
        data = data.prod(dim=axis, keepdim=keepdim)
    return data


def _product_without_nan(data: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor:
    return _product(data.nan_to_num(1.0), dim, keepdim)


def _norm(parameters: MXNetParameters, data: Tensor) -> Tensor:
    order = float(parameters.text("ord", "2"))
    return _reducing(partial(torch.linalg.vector_norm, ord=order))(parameters, data)


OPERATORS: Operators = {
    "max": _reducing(torch.amax),
    "mean": _reducing(torch.mean),
    "min": _reducing(torch.amin),
    "nanprod": _reducing(_product_without_nan),
    "nansum": _reducing(torch.nansum),
    "norm": _norm,
    "prod": _reducing(_product),
    "sum": _reducing(torch.sum),
}
