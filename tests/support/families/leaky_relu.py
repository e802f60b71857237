"""LeakyReLU: cases and formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from families.dropout import word
from operator_harness import RANDOM, STREAM
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]
# The constants of the paper "Self-Normalizing Neural Networks".
SELU_ALPHA, SELU_LAMBDA = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def slope_of(p: Any, inputs: list[Array], index: tuple[int, ...], is_train: bool) -> float:
    """Return the slope of an element below zero, in functions that are linear there."""
    if p.act_type == "prelu":
        gamma = inputs[1]
        return float(gamma[index[1] if len(gamma) > 1 else 0])
    if p.act_type == "rrelu" and is_train:
        position = int(np.ravel_multi_index(index, inputs[0].shape))
        unit = (word(RANDOM[0] ^ STREAM, RANDOM[1], position) >> 8) / 2**24
        return float(p.lower_bound + unit * (p.upper_bound - p.lower_bound))
    return float((p.lower_bound + p.upper_bound) / 2 if p.act_type == "rrelu" else p.slope)


def leaky_relu(p: Any, inputs: list[Array], is_train: bool = True) -> list[Array]:
    """Compute with Python's math, one element at a time."""
    data = inputs[0]
    output, mask = np.empty_like(data), np.ones_like(data)
    for index in np.ndindex(*data.shape):
        x = float(data[index])
        if p.act_type == "gelu":
            output[index] = x * math.erfc(-x / math.sqrt(2)) / 2
        elif p.act_type == "selu":
            output[index] = SELU_LAMBDA * (x if x > 0 else SELU_ALPHA * (math.exp(x) - 1))
        elif x > 0:
            output[index] = x
        elif p.act_type == "elu":
            output[index] = p.slope * (math.exp(x) - 1)
        else:
            mask[index] = slope_of(p, inputs, index, is_train)
            output[index] = x * float(mask[index])
    return [output, mask] if p.act_type == "rrelu" else [output]


PRELU: dict[str, object] = {"act_type": "prelu"}
RRELU: dict[str, object] = {"act_type": "rrelu"}

ROWS: list[Row] = [
    *rows(
        "LeakyReLU",
        ({}, (4, 5)),
        ({"act_type": "leaky", "slope": 0.01}, (3, 4, 5, 2)),
        ({"act_type": "leaky", "slope": -0.5}, (17,)),
        ({"act_type": "leaky", "slope": 0.0}, (3, 5)),
        ({"act_type": "elu"}, (4, 5)),
        ({"act_type": "elu", "slope": 1.0}, (2, 3, 4)),
        ({"act_type": "elu", "slope": -0.5}, (3, 7)),
        ({"act_type": "gelu"}, (5, 6)),
        ({"act_type": "gelu"}, (2, 3, 2, 2)),
        (PRELU, (4, 5)),
        (PRELU, (3, 4, 5, 2)),
        (PRELU, (2, 17, 3)),
    ),
    # MXNet 1.9.1's gradient of selu is no derivative: 1.05 (1.67 + output) below zero.
    *rows(
        "LeakyReLU",
        ({"act_type": "selu"}, (5, 6)),
        ({"act_type": "selu"}, (2, 3, 2, 2)),
        peers=("PyTorch",),
    ),
    # Every library draws other numbers.
    *rows(
        "LeakyReLU",
        (RRELU, (4, 5)),
        ({**RRELU, "lower_bound": 0.5, "upper_bound": 0.75}, (2, 3, 7)),
        ({**RRELU, "lower_bound": -0.5, "upper_bound": 0.5}, (40, 1001)),
        peers=(),
    ),
    *rows("LeakyReLU", (RRELU, (4, 5)), (PRELU, (4, 5)), is_train=False),
]

REFERENCES: dict[str, Reference] = {"LeakyReLU": leaky_relu}
EVALUATED: dict[str, Reference] = {
    "LeakyReLU": lambda p, inputs: leaky_relu(p, inputs, is_train=False)
}
