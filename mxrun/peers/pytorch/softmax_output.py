"""SoftmaxOutput."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch.loss import Loss
from mxrun.peers.pytorch.parameters import Losses, MXNetParameters, Operators, Tensor

_FLATTENED_RANK = 2


def softmax_output(parameters: MXNetParameters, data: Tensor, label: Tensor) -> Tensor:
    """Return softmax; its gradient is that of the cross-entropy, independent of out_grad.

    The class axis is the last one, or axis 1 with multi_output.
    """
    multiple = parameters.flag("multi_output", False)
    if data.dim() > _FLATTENED_RANK and not (multiple or parameters.flag("preserve_shape", False)):
        raise ValueError("SoftmaxOutput of rank 3 requires multi_output or preserve_shape")
    probabilities = torch.softmax(data.detach(), 1 if multiple else -1)
    source = data.clone()
    if source.requires_grad:
        source.register_hook(
            lambda head: softmax_gradient(parameters, probabilities, label.detach(), head)
        )
    # source - source is zero; it connects the output to the hook that sets the gradient.
    return probabilities + (source - source.detach())


def softmax_gradient(
    parameters: MXNetParameters, probabilities: Tensor, label: Tensor, head: Tensor
) -> Tensor:
    """Return (probabilities - target) · grad_scale / normaliser, 0 for ignored labels."""
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
    # MXNet 1.9.1 applies no label smoothing under multi_output.
    smooth = 0.0 if multiple else parameters.number("smooth_alpha", 0.0)
    others = smooth / (classes - 1) if smooth else 0.0
    gradient = rows - torch.where(hit, 1.0 - smooth, others).to(rows.dtype)
    ignored = labels.long() == int(parameters.number("ignore_label", -1))
    if parameters.flag("use_ignore", False):
        gradient = gradient.masked_fill(ignored[..., None], 0.0)
    normalization = parameters.text("normalization", "null")
    if normalization == "valid":
        # Counts labels other than ignore_label even if use_ignore is off.
        scale /= max(int((~ignored).sum()), 1)
    else:
        per_sample = labels[0].numel() if multiple else 1
        samples = batch if multiple else labels.numel()
        scale /= per_sample * (samples if normalization == "batch" else 1)
    gradient = gradient * scale
    gradient = gradient.movedim(-1, 1) if multiple else gradient
    gradient = gradient.reshape(probabilities.shape)
    return gradient * head if parameters.flag("out_grad", False) else gradient


class SoftmaxLoss(Loss):
    """Cross-entropy of softmax over the last axis, over axis 1, or over all axes but the first."""

    def __init__(self, parameters: MXNetParameters) -> None:
        super().__init__(parameters)
        self.multiple = parameters.flag("multi_output", False)
        self.flat = not (self.multiple or parameters.flag("preserve_shape", False))
        self.smooth = 0.0 if self.multiple else parameters.number("smooth_alpha", 0.0)
        self.ignored = int(parameters.number("ignore_label", -1))
        self.ignores = parameters.flag("use_ignore", False)
        if parameters.flag("out_grad", False):
            raise ValueError("SoftmaxOutput with out_grad is not a loss")

    def forward(self, data: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return (sum times scale over the normaliser, mean over valid labels)."""
        if label.shape == data.shape:
            total = functional.cross_entropy(data, label, reduction="sum")
            return total * self.scale, total.detach() * data.shape[1] / data.numel()
        rows = _rows(data, self.multiple, self.flat)
        labels = label.reshape(rows.shape[0], *rows.shape[2:])
        # -100 is never a class index, so no label is ignored.
        ignored = self.ignored if self.ignores else -100
        # float32, as within cross_entropy: autocast alone would leave bfloat16.
        logarithms = functional.log_softmax(rows.float(), 1)
        plain = functional.nll_loss(logarithms, labels, ignore_index=ignored, reduction="sum")
        count: Any = labels.numel()
        valid = (labels != self.ignored).sum() if self._counts else count
        total = self._smoothed(logarithms, labels, plain)
        mean = total.detach() / (valid if self.ignores else count)
        return total * self._factor(data, labels, valid), mean

    @property
    def _counts(self) -> bool:
        return self.ignores or self.normalization == "valid"

    def _smoothed(self, logarithms: Tensor, labels: Tensor, plain: Tensor) -> Tensor:
        if not self.smooth:
            return plain
        others = self.smooth / (logarithms.shape[1] - 1)
        spread = -logarithms.sum(1)
        if self.ignores:
            spread = spread.masked_fill(labels == self.ignored, 0.0)
        return (1 - self.smooth - others) * plain + others * spread.sum()

    def _factor(self, data: Tensor, labels: Tensor, valid: Any) -> Any:
        """Return the scale over the normaliser."""
        if self.normalization == "valid":
            return self.scale / valid.clamp(min=1)
        positions = math.prod(data.shape[2:]) if self.multiple else 1
        samples = data.shape[0] if self.multiple else labels.numel()
        return self.scale / positions / (samples if self.normalization == "batch" else 1)


def _rows(data: Tensor, multiple: bool, flat: bool) -> Tensor:
    """Return the data with the classes in axis 1."""
    if multiple:
        return data
    return data.flatten(1) if flat else data.reshape(-1, data.shape[-1])


class SoftmaxResult(nn.Module):
    """SoftmaxOutput without a label: the probabilities."""

    def __init__(self, parameters: MXNetParameters) -> None:
        super().__init__()
        self.multiple = parameters.flag("multi_output", False)
        self.flat = not (self.multiple or parameters.flag("preserve_shape", False))

    def forward(self, data: Tensor) -> Tensor:
        """Return the probabilities, in the shape of `data`."""
        if self.flat:
            return torch.softmax(data.flatten(1), 1).reshape(data.shape)
        return torch.softmax(data, 1 if self.multiple else -1)


OPERATORS: Operators = {
    "SoftmaxOutput": softmax_output,
}
LOSSES: Losses = {"SoftmaxOutput": SoftmaxLoss}
RESULTS: Losses = {"SoftmaxOutput": SoftmaxResult}
