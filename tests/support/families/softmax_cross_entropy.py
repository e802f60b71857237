"""softmax_cross_entropy: cases and formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def softmax_cross_entropy(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute one row at a time, in Python's numbers."""
    data, label, *weight = inputs
    loss = 0.0
    for n, values in enumerate(data):
        total = math.fsum(math.exp(value) for value in values)
        inside = 0 <= label[n] < len(values)
        probability = math.exp(values[int(label[n])]) / total if inside else 0.0
        loss -= math.log(max(probability, 1e-8)) * float(weight[0][n] if weight else 1)
    return [np.array([loss], data.dtype)]


REFERENCES: dict[str, Reference] = {"softmax_cross_entropy": softmax_cross_entropy}

ROWS: list[Row] = [
    # MXNet refuses to run with a gradient array for the label, so it runs without gradients.
    *rows(
        "softmax_cross_entropy",
        *(({}, shape) for shape in ((5, 4), (1, 3), (6, 17), (64, 10), (150, 301))),
        peers=("PyTorch",),
    ),
    *rows(
        "softmax_cross_entropy",
        *(({}, shape) for shape in ((5, 4), (64, 10))),
        peers=("MXNet",),
        is_train=False,
    ),
    *rows("softmax_cross_entropy", ({}, (4, 1)), labels=(0, 1), peers=("PyTorch",)),
    *rows("softmax_cross_entropy", ({}, (6, 4)), label_dtype="float32", peers=("PyTorch",)),
    # For a label outside the classes, MXNet reads memory outside the row, or outside the array.
    *rows("softmax_cross_entropy", ({}, (9, 3)), labels=(-2, 6), differentiable=False, peers=()),
    *rows("softmax_cross_entropy", ({"use_sample_weight": True}, (6, 4)), peers=()),
]
