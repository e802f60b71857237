"""Cast."""

from __future__ import annotations

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def cast(parameters: MXNetParameters, data: Tensor) -> Tensor:
    """Convert to another dtype."""
    dtype: torch.dtype = getattr(torch, parameters.text("dtype", "float32"))
    return data.to(dtype)


OPERATORS: Operators = {
    "Cast": cast,
}
