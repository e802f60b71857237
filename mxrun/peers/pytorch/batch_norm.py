"""BatchNorm."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor


def batch_norm(
    parameters: MXNetParameters,
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output, and the mean and biased variance used for normalisation.

    The moving statistics are updated here, because functional.batch_norm uses an unbiased moving
    variance.
    """
    axis = int(parameters.number("axis", 1)) % data.dim()
    others = [other for other in range(data.dim()) if other != axis]
    shape = [1] * data.dim()
    shape[axis] = -1
    mean, var = moving_mean.clone(), moving_var.clone()
    if parameters.is_train and not parameters.flag("use_global_stats", False):
        var, mean = torch.var_mean(data, others, correction=0)
        momentum = parameters.number("momentum", 0.9)
        for moving, new in ((moving_mean, mean), (moving_var, var)):
            moving.mul_(momentum).add_(new.detach(), alpha=1 - momentum)
    scale = torch.rsqrt(var + parameters.number("eps", 1e-3))
    if not parameters.flag("fix_gamma", True):
        scale = scale * gamma
    output = (data - mean.reshape(shape)) * scale.reshape(shape) + beta.reshape(shape)
    # As in MXNet the statistics outputs pass no gradient; the zero lets autograd differentiate
    # them.
    zero = 0 * beta
    return output, mean.detach() + zero, var.detach() + zero


class BatchNormModule(nn.modules.batchnorm._BatchNorm):
    """PyTorch's batch norm for any rank; unlike MXNet's, its moving variance is unbiased."""

    def _check_input_dim(self, input: Tensor) -> None:
        del input


def batch_norm_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
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


OPERATORS: Operators = {
    "BatchNorm": batch_norm,
}
AUXILIARY_INPUTS: dict[str, tuple[int, ...]] = {"BatchNorm": (3, 4)}
MODULES: Modules = {"BatchNorm": batch_norm_module}
