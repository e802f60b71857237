"""gelu, silu and gated_activation."""

from __future__ import annotations

import torch
from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def gelu(parameters: MXNetParameters, data: Tensor) -> Tensor:
    return functional.gelu(data, approximate=parameters.text("approximate", "none"))


def silu(parameters: MXNetParameters, data: Tensor) -> Tensor:
    del parameters
    return functional.silu(data)


_GATES = {"gelu": functional.gelu, "silu": functional.silu, "sigmoid": torch.sigmoid}


def gated_activation(parameters: MXNetParameters, data: Tensor) -> Tensor:
    gate, value = data.chunk(2, dim=-1)
    return _GATES[parameters.text("act_type", "gelu")](gate) * value


OPERATORS: Operators = {"gelu": gelu, "silu": silu, "gated_activation": gated_activation}
