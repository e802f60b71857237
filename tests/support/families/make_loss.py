"""MakeLoss and BlockGrad: cases, formulas and gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Objective, Reference, Row, rows

Array = npt.NDArray[Any]


def block_grad(p: Any, inputs: list[Array]) -> list[Array]:
    """Unchanged."""
    return [inputs[0].copy()]


def make_loss(p: Any, inputs: list[Array]) -> list[Array]:
    """Unchanged, and an exact sum."""
    data, *weight = inputs
    terms = [
        float(value) * (float(weight[0][index]) if weight else 1.0)
        for index, row in enumerate(data)
        for value in np.ravel(row)
    ]
    return [data.copy(), np.array([math.fsum(terms)], data.dtype)]


def make_loss_objective(
    row: Row, inputs: list[Array], outputs: list[Array], out_grad: list[Array]
) -> float:
    """The loss times grad_scale / divisor."""
    p = row.create().parameters
    data, *weight = inputs
    present = np.ones(len(data), bool) if not weight else weight[0] != 0
    divisors = {
        "null": 1,
        "batch": max(1, sum(present) * data[0].size // data.shape[-1]) if data.ndim > 1 else 1,
        "valid": max(1, sum(value > p.valid_thresh for value in data[present].flat)),
    }
    return float(outputs[1][0]) * float(p.grad_scale) / int(divisors[p.normalization])


ROWS: list[Row] = [
    *rows("BlockGrad", *(({}, shape) for shape in ((3,), (2, 3), (2, 3, 4), (1, 1), (2, 3, 2, 2)))),
    *rows(
        "MakeLoss",
        ({}, (3, 4)),
        ({"grad_scale": 3.0}, (5,)),
        ({"grad_scale": 3.0, "normalization": "batch"}, (4, 3)),
        ({"grad_scale": 3.0, "normalization": "batch"}, (4, 3, 2)),
        ({"grad_scale": 3.0, "normalization": "batch"}, (5,)),
        ({"normalization": "valid"}, (4, 5)),
        ({"normalization": "valid", "valid_thresh": 0.5, "grad_scale": 0.5}, (3, 2, 2, 2)),
        ({"normalization": "valid", "valid_thresh": 50.0}, (3, 2)),
        ({"grad_scale": 2.0}, (64, 1000)),
    ),
    *rows(
        "MakeLoss",
        ({"use_sample_weight": True}, (6, 4)),
        ({"use_sample_weight": True, "normalization": "batch"}, (5, 2)),
        ({"use_sample_weight": True, "normalization": "valid"}, (7, 3)),
        peers=(),
    ),
]

REFERENCES: dict[str, Reference] = {"BlockGrad": block_grad, "MakeLoss": make_loss}

OBJECTIVES: dict[str, Objective] = {"MakeLoss": make_loss_objective}
