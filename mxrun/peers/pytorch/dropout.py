"""Dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor


def dropout(parameters: MXNetParameters, data: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and its mask, which PyTorch's own generator draws."""
    p = parameters.number("p", 0.5)
    shape = list(data.shape)
    for axis in parameters.shape("axes", ()):
        shape[axis] = 1
    dropping = parameters.is_train or parameters.text("mode", "training") == "always"
    mask = functional.dropout(torch.ones(shape, dtype=data.dtype), p, training=dropping)
    return data * mask, mask


def dropout_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    del tensors
    if parameters.text("mode", "training") != "training" or parameters.shape("axes", ()):
        return None
    return nn.Dropout(parameters.number("p", 0.5))


OPERATORS: Operators = {
    "Dropout": dropout,
}
MODULES: Modules = {"Dropout": dropout_module}
