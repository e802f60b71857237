"""Matrix products."""

from __future__ import annotations

import torch

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def dot(parameters: MXNetParameters, lhs: Tensor, rhs: Tensor) -> Tensor:
    """Contract lhs's last axis with rhs's first.

    With transpose_a lhs's first axis is contracted, with transpose_b rhs's last.
    """
    first = 0 if parameters.flag("transpose_a", False) else lhs.dim() - 1
    last = rhs.dim() - 1 if parameters.flag("transpose_b", False) else 0
    result = torch.tensordot(lhs, rhs, ([first], [last]))
    return result if result.dim() else result[None]


def batch_dot(parameters: MXNetParameters, lhs: Tensor, rhs: Tensor) -> Tensor:
    """Multiply two stacks of matrices pairwise."""
    left = lhs.mT if parameters.flag("transpose_a", False) else lhs
    right = rhs.mT if parameters.flag("transpose_b", False) else rhs
    return torch.matmul(left, right)


OPERATORS: Operators = {"batch_dot": batch_dot, "dot": dot}
