"""PyTorch library modules for MXNet operators, the form that PyTorch's kernels are made for.

An operator without such a module runs its reference function (`mxrun.peers.pytorch`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch import OPERATORS
from mxrun.peers.pytorch.parameters import MXNetParameters, Tensor

_FLATTENED_RANK = 2
_ACTIVATIONS: dict[str, Callable[[], Any]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "softrelu": nn.Softplus,
    "softsign": nn.Softsign,
}


class OracleModule(nn.Module):
    """Module that calls an operator's reference function."""

    def __init__(self, operator: str, parameters: MXNetParameters) -> None:
        super().__init__()
        self.function, self.parameters_of_operator = OPERATORS[operator], parameters

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs as a tuple."""
        result = self.function(self.parameters_of_operator, *tensors)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)


class Flat(nn.Module):
    """Module applied to flattened data.

    Data of rank 2 is not reshaped, to save time that idiomatic PyTorch code would not spend either.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, data: Tensor) -> Tensor:
        """Return the inner module's output."""
        return self.inner(data if data.dim() == _FLATTENED_RANK else data.flatten(1))


def library_module(operator: str, parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    """Return the library module of an operator over `tensors`, its arguments after data; or None.

    The tensors become the module's parameters and buffers.
    """
    make = _MODULES.get(operator)
    return None if make is None else make(parameters, tensors)


def _fully_connected(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    weight = tensors[0]
    linear = _adopt(nn.Linear, (weight.shape[1], weight.shape[0]), tensors)
    return Flat(linear) if parameters.flag("flatten", True) else linear


def _convolution(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    spatial = tensors[0].dim() - 2
    groups = int(parameters.number("num_group", 1))
    channels = tensors[0].shape[1] * groups, tensors[0].shape[0]
    ones, zeros = (1,) * spatial, (0,) * spatial
    return _adopt(
        {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[spatial],
        (*channels, parameters.shape("kernel", ones)),
        tensors,
        stride=parameters.shape("stride", ones),
        padding=parameters.shape("pad", zeros),
        dilation=parameters.shape("dilate", ones),
        groups=groups,
    )


def _adopt(kind: Any, sizes: tuple[Any, ...], tensors: list[Tensor], **keywords: Any) -> Any:
    """Create a module with the given weight and optional bias."""
    module = kind(*sizes, bias=len(tensors) > 1, device="meta", **keywords)
    module.weight = tensors[0]
    if len(tensors) > 1:
        module.bias = tensors[1]
    return module


class BatchNormModule(nn.modules.batchnorm._BatchNorm):
    """PyTorch's batch norm for any rank; unlike MXNet's, its moving variance is unbiased."""

    def _check_input_dim(self, input: Tensor) -> None:
        del input


def _batch_norm(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    if int(parameters.number("axis", 1)) != 1 or parameters.flag("use_global_stats", False):
        return None
    gamma, beta, mean, var = tensors
    module = BatchNormModule(
        len(gamma),
        eps=parameters.number("eps", 1e-3),
        momentum=1 - parameters.number("momentum", 0.9),
    )
    module.weight, module.bias = gamma, beta
    if parameters.flag("fix_gamma", True):
        module.weight = nn.Parameter(torch.ones_like(gamma), requires_grad=False)
    module.running_mean, module.running_var = mean, var
    return module


class GlobalPooling(nn.Module):
    """Maximum or mean over all positions."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.names = {rank: f"adaptive_{kind}_pool{rank - 2}d" for rank in (3, 4, 5)}

    def forward(self, data: Tensor) -> Tensor:
        """Return one position for each channel."""
        return getattr(functional, self.names[data.dim()])(data, 1)


def _pooling(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    del tensors
    kind = parameters.text("pool_type", "max")
    convention = parameters.text("pooling_convention", "valid")
    if kind not in ("max", "avg"):
        return None
    if parameters.flag("global_pool", False):
        return GlobalPooling(kind)
    if convention == "same":
        return None
    kernel = parameters.shape("kernel", ())
    keywords: dict[str, Any] = {
        "stride": parameters.shape("stride", (1,) * len(kernel)),
        "padding": parameters.shape("pad", (0,) * len(kernel)),
        "ceil_mode": convention == "full",
    }
    if kind == "avg":
        keywords["count_include_pad"] = parameters.flag("count_include_pad", True)
    return getattr(nn, f"{kind.title()}Pool{len(kernel)}d")(kernel, **keywords)


def _activation(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    del tensors
    make = _ACTIVATIONS.get(parameters.text("act_type", ""))
    return None if make is None else make()


def _flatten(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    del parameters, tensors
    return nn.Flatten()


class EmbeddingModule(nn.Module):
    """Lookup of rows by index."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, data: Tensor) -> Tensor:
        """Return [..., columns]; every index must be that of a row."""
        return functional.embedding(data.long(), self.weight)


def _embedding(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    del parameters
    return EmbeddingModule(tensors[0])


def _dropout(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    del tensors
    if parameters.text("mode", "training") != "training" or parameters.shape("axes", ()):
        return None
    return nn.Dropout(parameters.number("p", 0.5))


_MODULES: dict[str, Callable[[MXNetParameters, list[Tensor]], Any]] = {
    "Activation": _activation,
    "BatchNorm": _batch_norm,
    "Convolution": _convolution,
    "Dropout": _dropout,
    "Embedding": _embedding,
    "Flatten": _flatten,
    "FullyConnected": _fully_connected,
    "Pooling": _pooling,
}
