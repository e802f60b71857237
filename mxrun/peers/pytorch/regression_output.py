"""Regression outputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


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


OPERATORS: Operators = {
    "LinearRegressionOutput": partial(regression_output, torch.clone, difference),
    "LogisticRegressionOutput": partial(regression_output, torch.sigmoid, difference),
    "MAERegressionOutput": partial(regression_output, torch.clone, sign),
}
