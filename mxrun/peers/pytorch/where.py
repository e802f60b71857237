"""where."""

from __future__ import annotations

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def where(parameters: MXNetParameters, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return x where the condition is not 0, else y; a condition of rank 1 selects rows."""
    del parameters
    wide = condition.reshape(condition.shape + (1,) * (x.dim() - condition.dim()))
    return torch.where(wide != 0, x, y) + 0 * wide


OPERATORS: Operators = {"where": where}
