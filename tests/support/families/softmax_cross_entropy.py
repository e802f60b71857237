"""softmax_cross_entropy: cases and formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Objective, Reference, Row, rows

Array = npt.NDArray[Any]


def softmax_cross_entropy(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute one row at a time, in Python's numbers."""
    data, label, *weight = inputs
    loss = 0.0
    for index in np.ndindex(*label.shape):
        values, one = data[index], label[index]
        if p.use_ignore and int(one) == int(p.ignore_label):
            continue
        total = math.fsum(math.exp(value) for value in values)
        probability = math.exp(values[int(one)]) / total if 0 <= one < len(values) else 0.0
        loss -= math.log(max(probability, 1e-8)) * float(weight[0][index[0]] if weight else 1)
    return [np.array([loss], data.dtype)]


def scaled(row: Row, inputs: list[Array], outputs: list[Array], out_grad: list[Array]) -> float:
    """Return the output times grad_scale, whose derivative the gradient is."""
    scale = row.create().parameters.grad_scale
    return float(outputs[0][0]) * float(out_grad[0][0]) * scale


OBJECTIVES: dict[str, Objective] = {"softmax_cross_entropy": scaled}
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
    # Rows of more than one axis, ignored labels and the gradient's factor are additions to MXNet's.
    *rows(
        "softmax_cross_entropy",
        ({}, (4, 7, 5)),
        ({"use_ignore": True, "ignore_label": 2}, (3, 2, 6, 4)),
        ({"use_ignore": True}, (30, 65)),
        peers=("PyTorch",),
    ),
    *rows(
        "softmax_cross_entropy",
        ({"use_ignore": True, "use_sample_weight": True}, (5, 3, 4)),
        labels=(-1, 4),
        peers=(),
    ),
    *rows("softmax_cross_entropy", ({"grad_scale": 0.25}, (3, 4, 6)), peers=("PyTorch",)),
]
