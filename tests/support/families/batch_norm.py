"""BatchNorm: cases and formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Objective, Reference, Row, rows

Array = npt.NDArray[Any]


def positive(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    return random.uniform(0.5, 2, shape).astype(dtype)


def batch_norm(p: Any, inputs: list[Array], is_train: bool = True) -> list[Array]:
    """Compute one channel at a time, with Python's exact sums."""
    data, gamma, beta, moving_mean, moving_var = inputs
    output = np.empty_like(data)
    means, variances = np.empty_like(gamma), np.empty_like(gamma)
    for channel in range(len(gamma)):
        values = data.take(channel, p.axis).astype("float64")
        mean, variance = float(moving_mean[channel]), float(moving_var[channel])
        if is_train and not p.use_global_stats:
            mean = math.fsum(values.ravel()) / values.size
            variance = math.fsum((values.ravel() - mean) ** 2) / values.size
        scale = (1 if p.fix_gamma else float(gamma[channel])) / math.sqrt(variance + p.eps)
        place = [slice(None)] * data.ndim
        place[p.axis] = channel
        output[tuple(place)] = (values - mean) * scale + float(beta[channel])
        means[channel], variances[channel] = mean, variance
    return [output, means, variances]


def limited(p: Any, inputs: list[Array], is_train: bool = True) -> list[Array]:
    """The same, plus residual, and 0 where that is negative or clipped."""
    *others, moving_mean, moving_var = inputs
    statistics = (moving_mean, moving_var)
    output, *further = batch_norm(p, [*others[:3], *statistics], is_train)
    for residual in others[3:]:
        output = output + residual
    low, high = p.limits or (0, np.inf)
    return [np.minimum(np.maximum(output, low), high), *further]


def of_the_output_alone(
    row: Row, inputs: list[Array], outputs: list[Array], out_grad: list[Array]
) -> float:
    """Return the objective of the first output: mean and var have no gradient, even if visible."""
    return float((out_grad[0] * outputs[0]).sum())


VALUES = {"moving_var": positive}
FREE: dict[str, object] = {"fix_gamma": False}
GLOBAL: dict[str, object] = {"use_global_stats": True}

ADDED: dict[str, object] = {"fix_gamma": False, "residual": True}
CLIPPED: dict[str, object] = {"fix_gamma": False, "limits": (-0.5, 0.75)}

ROWS: list[Row] = [
    *rows(
        "_batch_norm_limited",
        ({}, (6, 5)),
        (FREE, (4, 3, 5, 4)),
        ({**FREE, "axis": -1}, (3, 4, 5)),
        (GLOBAL, (4, 3, 2, 2)),
        (CLIPPED, (6, 5)),
        ({**CLIPPED, **GLOBAL}, (4, 3, 2, 2)),
        # Rounding to bfloat16 would move some of these many numbers across a limit other than 0.
        ({**CLIPPED, "limits": (0.0, 6.0)}, (4, 16, 5, 4)),
        (ADDED, (6, 5)),
        (ADDED, (4, 16, 5, 4)),
        ({**ADDED, **GLOBAL}, (2, 3, 7)),
        values=VALUES,
        peers=(),
    ),
    *rows(
        "_batch_norm_limited",
        (FREE, (4, 3, 2, 2)),
        (ADDED, (4, 3, 2, 2)),
        (CLIPPED, (4, 3, 2, 2)),
        values=VALUES,
        is_train=False,
        peers=(),
    ),
    *rows(
        "BatchNorm",
        ({}, (6, 5)),
        (FREE, (6, 5)),
        ({}, (4, 3, 5, 4)),
        ({**FREE, "eps": 2e-5, "momentum": 0.75}, (4, 16, 5, 4)),
        ({**FREE, "axis": -1}, (3, 4, 5)),
        ({**FREE, "axis": 2}, (3, 4, 5, 2)),
        (FREE, (2, 3, 7)),
        (FREE, (2, 3, 2, 3, 2)),
        ({**FREE, "eps": 0.5}, (1, 3)),
        (GLOBAL, (4, 3, 2, 2)),
        ({**FREE, **GLOBAL}, (4, 3, 2, 2)),
        ({**FREE, **GLOBAL}, (7, 4)),
        values=VALUES,
    ),
    # MXNet 1.9.1's output var is the inverse deviation.
    *rows(
        "BatchNorm",
        ({**FREE, "output_mean_var": True}, (4, 3, 2, 2)),
        ({**FREE, **GLOBAL, "output_mean_var": True}, (4, 3, 2, 2)),
        values=VALUES,
        peers=("PyTorch",),
    ),
    *rows(
        "BatchNorm",
        ({}, (4, 3, 2, 2)),
        (FREE, (4, 3, 2, 2)),
        (FREE, (5, 7)),
        values=VALUES,
        is_train=False,
    ),
]

REFERENCES: dict[str, Reference] = {"BatchNorm": batch_norm, "_batch_norm_limited": limited}
EVALUATED: dict[str, Reference] = {
    "BatchNorm": lambda p, inputs: batch_norm(p, inputs, is_train=False),
    "_batch_norm_limited": lambda p, inputs: limited(p, inputs, is_train=False),
}
OBJECTIVES: dict[str, Objective] = {
    "BatchNorm": of_the_output_alone,
    "_batch_norm_limited": of_the_output_alone,
}
