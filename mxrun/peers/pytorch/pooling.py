"""Pooling."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor


def pooled_size(convention: str, size: int, kernel: int, stride: int, pad: int) -> int:
    """Return the number of windows along one axis: `valid` rounds down, `full` up.

    With `same` a window starts every `stride` elements, the first one at the first element.
    """
    if convention == "same":
        return math.ceil(size / stride)
    round_to = math.floor if convention == "valid" else math.ceil
    return int(round_to((size + 2 * pad - kernel) / stride)) + 1


def _padded(data: Tensor, pads: list[tuple[int, int]], value: float) -> Tensor:
    """Pad the spatial axes with a constant; a negative amount crops."""
    flat = [amount for pair in reversed(pads) for amount in pair]
    return functional.pad(data, flat, value=value)


def _windows(data: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """Return the windows as (batch, channel, *windows, elements of one window)."""
    for axis, (extent, step) in enumerate(zip(kernel, stride, strict=True)):
        data = data.unfold(2 + axis, extent, step)
    return data.flatten(2 + len(kernel))


def pooling(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Return maximum, mean, sum or p-norm over windows.

    MXNet's `lp` takes no absolute value: (sum of x^p)^(1/p), a plain sum at p = 1.
    """
    sizes = tuple(data.shape[2:])
    ones, zeros = (1,) * len(sizes), (0,) * len(sizes)
    everything = parameters.flag("global_pool", False)
    kernel = sizes if everything else parameters.shape("kernel", ones)
    stride = ones if everything else parameters.shape("stride", ones)
    pad = zeros if everything else parameters.shape("pad", zeros)
    convention = parameters.text("pooling_convention", "valid")
    if convention == "same":
        if len(sizes) > 1 or any(pad):
            raise ValueError("pooling_convention same is for one spatial axis without pad")
        pad = zeros  # MXNet wants three zeros for the one axis.
    # Right padding with which the last window ends at the border, for every convention.
    pads = [
        (p, (pooled_size(convention, size=x, kernel=k, stride=s, pad=p) - 1) * s + k - x - p)
        for x, k, s, p in zip(sizes, kernel, stride, pad, strict=True)
    ]
    kind = parameters.text("pool_type", "max")
    if kind == "max":
        pool = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
        return pool[len(sizes)](_padded(data, pads, torch.finfo(data.dtype).min), kernel, stride)
    windows = _windows(_padded(data, pads, 0.0), kernel, stride)
    if kind == "lp" and parameters.number("p_value", math.nan) == 2:
        return torch.linalg.vector_norm(windows, 2, dim=-1)
    if kind == "lp" and parameters.number("p_value", math.nan) != 1:
        raise ValueError("lp pooling is supported for p_value 1 and 2")
    total = windows.sum(-1)
    if kind != "avg":
        return total
    counted = _counted(data, pads, pad, parameters.flag("count_include_pad", True))
    return total / _windows(counted, kernel, stride).sum(-1).clamp(min=1)


def _counted(
    data: Tensor, pads: list[tuple[int, int]], pad: tuple[int, ...], include: bool
) -> Tensor:
    """Return 1 for each element that counts for the mean, else 0, over the padded sizes.

    Requested padding counts if `include`; further padding by the `full` convention never does.
    """
    ones = data.new_ones((1, 1, *data.shape[2:]))
    if include:
        requested = [(p, min(p, right)) for p, (_, right) in zip(pad, pads, strict=True)]
        ones = _padded(ones, requested, 1.0)
        pads = [(0, right - done) for (_, right), (_, done) in zip(pads, requested, strict=True)]
    return _padded(ones, pads, 0.0)


class GlobalPooling(nn.Module):
    """Maximum or mean over all positions."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.names = {rank: f"adaptive_{kind}_pool{rank - 2}d" for rank in (3, 4, 5)}

    def forward(self, data: Tensor) -> Tensor:
        """Return one position for each channel."""
        return getattr(functional, self.names[data.dim()])(data, 1)


def pooling_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
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


OPERATORS: Operators = {
    "Pooling": pooling,
}
MODULES: Modules = {"Pooling": pooling_module}
