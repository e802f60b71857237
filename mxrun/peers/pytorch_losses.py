"""Losses of MXNet's `*Output` operators as differentiable PyTorch modules.

MXNet's gradient of such an operator is the derivative of an objective that the operator does not
compute. Each module takes data and label, and returns that objective and the reported mean loss.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Tensor


class Loss(nn.Module):
    """Base class of losses; `scale` is the gradient's factor."""

    def __init__(self, parameters: MXNetParameters) -> None:
        super().__init__()
        self.scale = parameters.number("grad_scale", 1.0)
        self.normalization = parameters.text("normalization", "null")


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


class RegressionLoss(Loss):
    """Half the squared difference, its absolute value, or the logistic cross-entropy.

    The loss is a mean over a sample's elements, summed over the samples.
    """

    def __init__(self, parameters: MXNetParameters, kind: str) -> None:
        super().__init__(parameters)
        self.kind = kind

    def forward(self, data: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return (sum times scale, mean over samples)."""
        wanted = label.reshape(data.shape).to(data.dtype)
        if self.kind == "LogisticRegressionOutput":
            total = functional.binary_cross_entropy_with_logits(data, wanted, reduction="sum")
        elif self.kind == "MAERegressionOutput":
            total = functional.l1_loss(data, wanted, reduction="sum")
        else:
            total = functional.mse_loss(data, wanted, reduction="sum") / 2
        mean = total.detach() / data.numel()
        return total * (self.scale * data.shape[0] / data.numel()), mean


class MadeLoss(Loss):
    """MakeLoss: the data is the loss."""

    def forward(self, data: Tensor) -> tuple[Tensor, Tensor]:
        """Return (sum times scale over the normaliser, mean over rows)."""
        if self.normalization == "valid":
            raise ValueError("MakeLoss with normalization valid is not supported as a loss")
        total = data.float().sum()
        divisor = math.prod(data.shape[:-1]) if self.normalization == "batch" else 1
        return total * (self.scale / divisor), total.detach() / data.shape[0]


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


def loss_module(operator: str, parameters: MXNetParameters) -> Any:
    """Return the module of a loss; None for other operators."""
    if operator == "SoftmaxOutput":
        return SoftmaxLoss(parameters)
    if operator.endswith("RegressionOutput"):
        return RegressionLoss(parameters, operator)
    return MadeLoss(parameters) if operator == "MakeLoss" else None


def result_module(operator: str, parameters: MXNetParameters) -> Any:
    """Return the module that replaces a loss in inference; None for other operators."""
    if operator == "SoftmaxOutput":
        return SoftmaxResult(parameters)
    if operator == "LogisticRegressionOutput":
        return nn.Sigmoid()
    if operator == "MakeLoss" or operator.endswith("RegressionOutput"):
        return nn.Identity()
    return None
