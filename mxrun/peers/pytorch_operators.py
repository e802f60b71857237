"""MXNet's operators in PyTorch: the oracle's second opinion, written for clarity, not speed.

Every entry of `OPERATORS` takes the operator's MXNet parameters as text and its tensors in MXNet's
argument order and returns the output. Gradients come from autograd, except where MXNet's gradient
is not the derivative of its output (SoftmaxOutput).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

Tensor = Any
_FLATTENED_RANK = 2


class Parameters:
    """An operator's parameters in MXNet's spelling: `(2, 2)`, `True` or `1`, `tanh`."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def text(self, name: str, default: str) -> str:
        """A word, as it stands."""
        return self._texts.get(name, default)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean; MXNet writes True, true and 1. None stands for the default."""
        text = self._texts.get(name, "None")
        return default if text == "None" else text in ("True", "true", "1")

    def number(self, name: str, default: float) -> float:
        """A number; nan where there is neither value nor default."""
        return float(self._texts.get(name, default))

    def shape(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """A tuple of integers; empty and absent both mean the default."""
        value = ast.literal_eval(self._texts.get(name, "()"))
        value = (value,) if isinstance(value, int) else tuple(value)
        return value or default


def convolution(parameters: Parameters, data: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
    """Cross-correlation over 1, 2 or 3 spatial axes, NCHW and OIHW."""
    if parameters.text("layout", "None") not in ("None", "NCW", "NCHW", "NCDHW"):
        raise ValueError("only channels-first convolutions are known here")
    rank = data.dim() - 2
    apply = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[rank]
    return apply(
        data,
        weight,
        bias[0] if bias else None,
        parameters.shape("stride", (1,) * rank),
        parameters.shape("pad", (0,) * rank),
        parameters.shape("dilate", (1,) * rank),
        int(parameters.number("num_group", 1)),
    )


def fully_connected(parameters: Parameters, data: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
    """data · weightᵀ + bias, over all but the first axis, or the last only."""
    flat = data.flatten(1) if parameters.flag("flatten", True) else data
    return functional.linear(flat, weight, bias[0] if bias else None)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    # log(1 + exp(x)) at full precision; functional.softplus turns linear above 20.
    "softrelu": lambda data: torch.logaddexp(data, torch.zeros_like(data)),
    "softsign": functional.softsign,
}


def activation(parameters: Parameters, data: Tensor) -> Tensor:
    """An elementwise function by name."""
    return ACTIVATIONS[parameters.text("act_type", "")](data)


def pooled_size(convention: str, size: int, kernel: int, stride: int, pad: int) -> int:
    """Windows along one axis: `valid` rounds down, `full` up.

    `same` starts a window every `stride` elements, the first one at the first element.
    """
    if convention == "same":
        return math.ceil(size / stride)
    round_to = math.floor if convention == "valid" else math.ceil
    return int(round_to((size + 2 * pad - kernel) / stride)) + 1


def _padded(data: Tensor, pads: list[tuple[int, int]], value: float) -> Tensor:
    """Constant padding of the spatial axes; a negative amount crops."""
    flat = [amount for pair in reversed(pads) for amount in pair]
    return functional.pad(data, flat, value=value)


def _windows(data: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """(batch, channel, *windows, elements of one window)."""
    for axis, (extent, step) in enumerate(zip(kernel, stride, strict=True)):
        data = data.unfold(2 + axis, extent, step)
    return data.flatten(2 + len(kernel))


def pooling(parameters: Parameters, data: Tensor) -> Tensor:
    """Maximum, mean, sum or p-norm over windows.

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
    # Right padding that makes the last window end at the border, whatever the convention.
    pads = [
        (p, (pooled_size(convention, x, k, s, p) - 1) * s + k - x - p)
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
        raise ValueError("lp pooling is known for p_value 1 and 2")
    total = windows.sum(-1)
    if kind != "avg":
        return total
    counted = _counted(data, pads, pad, parameters.flag("count_include_pad", True))
    return total / _windows(counted, kernel, stride).sum(-1).clamp(min=1)


def _counted(
    data: Tensor, pads: list[tuple[int, int]], pad: tuple[int, ...], include: bool
) -> Tensor:
    """1 where an element counts for the mean, 0 elsewhere, over the padded sizes.

    Padding asked for may count; what the `full` convention reads beyond it never does.
    """
    ones = data.new_ones((1, 1, *data.shape[2:]))
    if include:
        asked = [(p, min(p, right)) for p, (_, right) in zip(pad, pads, strict=True)]
        ones = _padded(ones, asked, 1.0)
        pads = [(0, right - done) for (_, right), (_, done) in zip(pads, asked, strict=True)]
    return _padded(ones, pads, 0.0)


def flatten(parameters: Parameters, data: Tensor) -> Tensor:
    """All axes but the first become one."""
    del parameters
    return data.flatten(1)


def elemwise_add(parameters: Parameters, lhs: Tensor, rhs: Tensor) -> Tensor:
    """lhs + rhs, of one shape."""
    del parameters
    if lhs.shape != rhs.shape:
        raise ValueError(f"elemwise_add of {tuple(lhs.shape)} and {tuple(rhs.shape)}")
    return lhs + rhs


def softmax_output(parameters: Parameters, data: Tensor, label: Tensor) -> Tensor:
    """Softmax forward; backward the cross-entropy gradient, whatever arrives from above.

    The class axis is the last one, or axis 1 with multi_output.
    """
    multiple = parameters.flag("multi_output", False)
    if data.dim() > _FLATTENED_RANK and not (multiple or parameters.flag("preserve_shape", False)):
        raise ValueError("SoftmaxOutput of rank 3 wants multi_output or preserve_shape")
    probabilities = torch.softmax(data.detach(), 1 if multiple else -1)
    source = data.clone()
    if source.requires_grad:
        source.register_hook(
            lambda head: softmax_gradient(parameters, probabilities, label.detach(), head)
        )
    # source - source is zero and exists to carry the gradient to the hook.
    return probabilities + (source - source.detach())


def softmax_gradient(
    parameters: Parameters, probabilities: Tensor, label: Tensor, head: Tensor
) -> Tensor:
    """(probabilities - target) · grad_scale / normaliser, 0 where the label is ignored."""
    scale = parameters.number("grad_scale", 1.0)
    if label.shape == probabilities.shape:
        gradient = (probabilities - label) * scale
        return gradient * head if parameters.flag("out_grad", False) else gradient
    multiple = parameters.flag("multi_output", False)
    batch = probabilities.shape[0]
    moved = probabilities.reshape(batch, probabilities.shape[1], -1).movedim(1, -1)
    rows = moved if multiple else probabilities
    classes = rows.shape[-1]
    labels = label.reshape(rows.shape[:-1])
    hit = labels.long()[..., None] == torch.arange(classes)
    # MXNet 1.9.1 smooths no labels under multi_output.
    smooth = 0.0 if multiple else parameters.number("smooth_alpha", 0.0)
    others = smooth / (classes - 1) if smooth else 0.0
    gradient = rows - torch.where(hit, 1.0 - smooth, others).to(rows.dtype)
    ignored = labels.long() == int(parameters.number("ignore_label", -1))
    if parameters.flag("use_ignore", False):
        gradient = gradient.masked_fill(ignored[..., None], 0.0)
    normalization = parameters.text("normalization", "null")
    if normalization == "valid":
        # Counts labels other than ignore_label even where use_ignore is off.
        scale /= max(int((~ignored).sum()), 1)
    else:
        per_sample = labels[0].numel() if multiple else 1
        samples = batch if multiple else labels.numel()
        scale /= per_sample * (samples if normalization == "batch" else 1)
    gradient = gradient * scale
    gradient = gradient.movedim(-1, 1) if multiple else gradient
    gradient = gradient.reshape(probabilities.shape)
    return gradient * head if parameters.flag("out_grad", False) else gradient


def _step(parameters: Parameters, weight: Tensor, gradient: Tensor) -> Tensor:
    """lr · (clip(rescale_grad · gradient) + wd · weight)."""
    rescaled = gradient * parameters.number("rescale_grad", 1.0)
    bound = parameters.number("clip_gradient", -1.0)
    if bound >= 0:  # MXNet's text says > 0, its code clips to zero at 0.
        rescaled = rescaled.clamp(-bound, bound)
    return parameters.number("lr", math.nan) * (rescaled + parameters.number("wd", 0.0) * weight)


def sgd_update(parameters: Parameters, weight: Tensor, gradient: Tensor) -> Tensor:
    """The new weight."""
    return weight - _step(parameters, weight, gradient)


def sgd_mom_update(
    parameters: Parameters, weight: Tensor, gradient: Tensor, momentum: Tensor
) -> Tensor:
    """The new weight; the momentum is changed where it lies."""
    momentum.mul_(parameters.number("momentum", 0.0)).sub_(_step(parameters, weight, gradient))
    return weight + momentum


OPERATORS: dict[str, Callable[..., Tensor]] = {
    "Activation": activation,
    "Convolution": convolution,
    "Flatten": flatten,
    "FullyConnected": fully_connected,
    "Pooling": pooling,
    "SoftmaxOutput": softmax_output,
    "elemwise_add": elemwise_add,
    "sgd_mom_update": sgd_mom_update,
    "sgd_update": sgd_update,
}
# Inputs an operator writes: MXNet calls them auxiliary states.
AUXILIARY_INPUTS: dict[str, tuple[int, ...]] = {"sgd_mom_update": (2,)}
