"""where."""

from __future__ import annotations

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def where(parameters: MXNetParameters, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """x where the condition is not 0, else y; a condition of one axis chooses rows."""
    del parameters
    wide = condition.reshape(condition.shape + (1,) * (x.dim() - condition.dim()))
    return torch.where(wide != 0, x, y) + 0 * wide


OPERATORS: Operators = {"where": where}
