"""gelu and silu."""

from __future__ import annotations

from torch.nn import functional

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def gelu(parameters: MXNetParameters, data: Tensor) -> Tensor:
    return functional.gelu(data, approximate=parameters.text("approximate", "none"))


def silu(parameters: MXNetParameters, data: Tensor) -> Tensor:
    del parameters
    return functional.silu(data)


OPERATORS: Operators = {"gelu": gelu, "silu": silu}
