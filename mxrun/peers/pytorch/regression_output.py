"""Regression outputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch.loss import Loss
from mxrun.peers.pytorch.parameters import Losses, MXNetParameters, Operators, Tensor


def difference(output: Tensor, label: Tensor) -> Tensor:
    """Return output - label."""
    return output - label


def sign(output: Tensor, label: Tensor) -> Tensor:
    """Return 1 if the output is above its label, otherwise -1, as in MXNet 1.9.1."""
    return torch.where(output > label, 1.0, -1.0).to(output.dtype)


def regression_output(
    link: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor, Tensor], Tensor],
    parameters: MXNetParameters,
    data: Tensor,
    label: Tensor,
) -> Tensor:
    """Return link(data); its gradient is slope · grad_scale / elements of a sample.

    The gradient does not depend on out_grad.
    """
    output = link(data.detach())
    source = data.clone()
    if source.requires_grad:
        scale = parameters.number("grad_scale", 1.0) * data.shape[0] / data.numel()
        target = label.detach().reshape(data.shape)
        source.register_hook(lambda head: slope(output, target) * scale)
    # source - source is zero; it connects the output to the hook that sets the gradient.
    return output + (source - source.detach())


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


OPERATORS: Operators = {
    "LinearRegressionOutput": partial(regression_output, torch.clone, difference),
    "LogisticRegressionOutput": partial(regression_output, torch.sigmoid, difference),
    "MAERegressionOutput": partial(regression_output, torch.clone, sign),
}
LOSSES: Losses = {name: partial(RegressionLoss, kind=name) for name in OPERATORS}
RESULTS: Losses = {
    "LinearRegressionOutput": lambda parameters: nn.Identity(),
    "LogisticRegressionOutput": lambda parameters: nn.Sigmoid(),
    "MAERegressionOutput": lambda parameters: nn.Identity(),
}
