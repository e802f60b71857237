"""Convolution with a sum and limits, and batch norm folded into a product: cases and formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from families.batch_norm import positive
from families.convolution import convolution
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def convolution_fused(p: Any, inputs: list[Array]) -> list[Array]:
    """Convolution's formula, the sum, the limits."""
    arguments, residual = (inputs[:-1], inputs[-1]) if p.residual else (inputs, 0)
    (output,) = convolution(p, arguments)
    return [np.minimum(np.maximum(output + residual, p.low), p.high).astype(inputs[0].dtype)]


def batch_norm_fold(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute one channel at a time."""
    weight, *bias, gamma, beta, mean, var = inputs
    folded, shifts = np.empty_like(weight), np.empty_like(beta)
    for channel in range(len(beta)):
        scale = (1 if p.fix_gamma else float(gamma[channel])) / math.sqrt(var[channel] + p.eps)
        folded[channel] = weight[channel] * scale
        shifts[channel] = beta[channel] - scale * mean[channel]
        shifts[channel] += scale * bias[0][channel] if bias else 0
    return [folded, shifts]


PADDED: dict[str, object] = {"kernel": (3, 3), "num_filter": 4, "pad": (1, 1)}
RECTIFIED: dict[str, object] = {**PADDED, "low": 0.0}
ADDED: dict[str, object] = {**PADDED, "residual": True}
FREE: dict[str, object] = {"fix_gamma": False}

ROWS: list[Row] = [
    *rows(
        "_convolution_fused",
        (RECTIFIED, (3, 2, 6, 5)),
        ({**RECTIFIED, "high": 1.5}, (2, 3, 4, 4)),
        ({**ADDED, "num_filter": 16}, (2, 16, 5, 5)),
        ({**ADDED, "low": 0.0, "stride": (2, 2)}, (2, 3, 7, 8)),
        ({**ADDED, "low": -0.5, "high": 0.5, "no_bias": True}, (2, 3, 4, 5)),
        ({**RECTIFIED, "num_filter": 6, "num_group": 6}, (2, 6, 5, 4)),
        ({"kernel": (3,), "num_filter": 3, "low": 0.0, "residual": True}, (2, 2, 9)),
        peers=(),
        is_train=False,
    ),
    *rows(
        "_batch_norm_fold",
        ({}, (4, 3, 2, 2)),
        (FREE, (4, 3, 2, 2)),
        ({**FREE, "no_bias": True}, (5, 7)),
        ({**FREE, "eps": 0.5}, (1, 3)),
        ({"no_bias": True}, (3, 1, 4)),
        values={"var": positive},
        peers=(),
        is_train=False,
    ),
]

REFERENCES: dict[str, Reference] = {
    "_convolution_fused": convolution_fused,
    "_batch_norm_fold": batch_norm_fold,
}
EVALUATED = REFERENCES
