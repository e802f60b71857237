"""MakeLoss and BlockGrad."""

from __future__ import annotations

import math

import torch
from torch import nn

from mxrun.peers.pytorch.loss import Loss
from mxrun.peers.pytorch.parameters import Losses, MXNetParameters, Operators, Tensor


def block_grad(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Return data with a gradient of zero."""
    del parameters
    return data.detach() + 0 * data


def make_loss(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Return data; the gradient is grad_scale / divisor, independent of out_grad.

    MXNet's batch is all axes but the last.
    """
    divisors = {
        "null": 1,
        "batch": math.prod(data.shape[:-1]),
        "valid": max(1, int((data > parameters.number("valid_thresh", 0.0)).sum())),
    }
    divisor = divisors[parameters.text("normalization", "null")]
    scale = parameters.number("grad_scale", 1.0) / divisor
    output = data.clone()
    if output.requires_grad:
        output.register_hook(lambda head: torch.full_like(head, scale))
    return output


class MadeLoss(Loss):
    """MakeLoss: the data is the loss."""

    def forward(self, data: Tensor) -> tuple[Tensor, Tensor]:
        """Return (sum times scale over the normaliser, mean over rows)."""
        if self.normalization == "valid":
            raise ValueError("MakeLoss with normalization valid is not supported as a loss")
        total = data.float().sum()
        divisor = math.prod(data.shape[:-1]) if self.normalization == "batch" else 1
        return total * (self.scale / divisor), total.detach() / data.shape[0]


OPERATORS: Operators = {
    "BlockGrad": block_grad,
    "MakeLoss": make_loss,
}
LOSSES: Losses = {"MakeLoss": MadeLoss}
RESULTS: Losses = {"MakeLoss": lambda parameters: nn.Identity()}
