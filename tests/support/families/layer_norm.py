"""LayerNorm and RMSNorm: cases and formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from families.batch_norm import of_the_output_alone
from operator_row import Objective, Reference, Row, rows

Array = npt.NDArray[Any]


def normalized(p: Any, inputs: list[Array], is_centered: bool) -> list[Array]:
    """Compute one row at a time, with Python's exact sums."""
    data, gamma, *beta = inputs
    moved = np.moveaxis(data, p.axis, -1)
    output, shape = np.empty_like(moved), (*moved.shape[:-1], 1)
    means, deviations = np.zeros(shape, data.dtype), np.empty(shape, data.dtype)
    for index in np.ndindex(*shape[:-1]):
        values = [float(value) for value in moved[index]]
        mean = math.fsum(values) / len(values) if is_centered else 0.0
        square = math.fsum((value - mean) ** 2 for value in values) / len(values)
        deviation = math.sqrt(square + p.eps)
        for c, value in enumerate(values):
            shift = float(beta[0][c]) if beta else 0.0
            output[(*index, c)] = (value - mean) / deviation * float(gamma[c]) + shift
        means[index], deviations[index] = mean, deviation
    statistics = [means, deviations] if is_centered else [deviations]
    return [np.moveaxis(each, -1, p.axis) for each in (output, *statistics)]


CASES: tuple[tuple[dict[str, object], tuple[int, ...]], ...] = (
    ({}, (6, 5)),
    ({}, (7,)),
    ({"eps": 0.25}, (2, 3, 16)),
    ({"axis": 0}, (4, 3)),
    ({"axis": 1}, (2, 5, 3)),
    # More bytes of data than of sums, so that rows and sums have different places.
    ({"axis": 1}, (2, 9, 8)),
    ({"axis": -2, "eps": 1e-3}, (2, 3, 4, 5)),
    ({}, (70, 97)),
)
# Longer than a block of a row's sum; MXNet's own sums over it are not precise enough.
LONG: tuple[dict[str, object], tuple[int, ...]] = ({}, (2, 5003))
VISIBLE: tuple[tuple[dict[str, object], tuple[int, ...]], ...] = (
    ({"output_mean_var": True}, (4, 35)),
    ({"output_mean_var": True, "axis": 1}, (2, 3, 4)),
)

ROWS = [
    *rows("LayerNorm", *CASES, *VISIBLE),
    *rows("LayerNorm", *VISIBLE, is_train=False),
    *rows("LayerNorm", LONG, peers=("PyTorch",)),
    *rows(
        "RMSNorm",
        *CASES,
        LONG,
        peers=("PyTorch",),
        no_peer="MXNet 1.9.1 has no RMSNorm.",
    ),
    *(
        row
        for name in ("_add_layer_norm", "_add_rms_norm")
        for row in rows(
            name,
            *CASES,
            LONG,
            peers=(),
            no_peer="It is made by fusion; no peer has an operator with these outputs.",
        )
    ),
]


def of_a_sum(p: Any, inputs: list[Array], is_centered: bool) -> list[Array]:
    """Normalise the sum of the first two inputs, which is the second output."""
    lhs, rhs, *scales = inputs
    output, *statistics = normalized(p, [lhs + rhs, *scales], is_centered)
    return [output, lhs + rhs, *statistics]


def of_output_and_sum(
    row: Row, inputs: list[Array], outputs: list[Array], out_grad: list[Array]
) -> float:
    """Return <gradients, output and sum>; the statistics pass none."""
    del row, inputs
    pairs = zip(outputs[:2], out_grad[:2], strict=True)
    return sum(float((output.astype(np.float64) * grad).sum()) for output, grad in pairs)


REFERENCES: dict[str, Reference] = {
    "LayerNorm": lambda p, inputs: normalized(p, inputs, True),
    "RMSNorm": lambda p, inputs: normalized(p, inputs, False),
    "_add_layer_norm": lambda p, inputs: of_a_sum(p, inputs, True),
    "_add_rms_norm": lambda p, inputs: of_a_sum(p, inputs, False),
}
OBJECTIVES: dict[str, Objective] = {
    "LayerNorm": of_the_output_alone,
    "RMSNorm": of_the_output_alone,
    "_add_layer_norm": of_output_and_sum,
    "_add_rms_norm": of_output_and_sum,
}
