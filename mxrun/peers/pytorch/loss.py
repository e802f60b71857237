"""Losses as modules: differentiable objectives, where a reference function gives MXNet's gradient.

MXNet's gradient of such an operator is the derivative of an objective that the operator does not
compute. Each module takes data and label, and returns that objective and the reported mean loss.
"""

from __future__ import annotations

from torch import nn

from mxrun.peers.pytorch.parameters import MXNetParameters


class Loss(nn.Module):
    """Base class of losses; `scale` is the gradient's factor."""

    def __init__(self, parameters: MXNetParameters) -> None:
        super().__init__()
        self.scale = parameters.number("grad_scale", 1.0)
        self.normalization = parameters.text("normalization", "null")
