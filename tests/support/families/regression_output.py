"""Regression outputs: cases, formula and loss."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Objective, Reference, Row, rows

Array = npt.NDArray[Any]


def logistic_loss(x: float, y: float) -> float:
    """The cross-entropy of probability y under the logistic function of x."""
    p = 1 / (1 + math.exp(-x))
    return -y * math.log(p) - (1 - y) * math.log(1 - p)


LINKS = {
    "LinearRegressionOutput": (lambda x: x, lambda x, y: (x - y) ** 2 / 2),
    "LogisticRegressionOutput": (lambda x: 1 / (1 + math.exp(-x)), logistic_loss),
    "MAERegressionOutput": (lambda x: x, lambda x, y: abs(x - y)),
}


def regression_output(operator: str, p: Any, inputs: list[Array]) -> list[Array]:
    """Compute output and loss one element at a time; every sample counts once, of any size."""
    data, label, *weight = inputs
    link, loss = LINKS[operator]
    output = np.array([link(x) for x in data.ravel()], data.dtype).reshape(data.shape)
    per_sample = data.size // len(data)
    terms = []
    for number, (x, y) in enumerate(zip(data.ravel(), label.ravel(), strict=True)):
        share = float(weight[0][number // per_sample]) if weight else 1.0
        terms.append(share * loss(float(x), float(y)) / per_sample)
    return [output, np.array([math.fsum(terms)], data.dtype)]


def regression_objective(
    row: Row, inputs: list[Array], outputs: list[Array], out_grad: list[Array]
) -> float:
    """The loss as grad_scale scales it."""
    return float(outputs[1][0] * row.create().parameters.grad_scale)


def probabilities(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Labels that all three losses accept."""
    return random.random(shape).astype("float32")


def thirds(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return few distinct values, so that some data equal their labels."""
    return random.integers(0, 3, shape).astype("float32")


ROWS: list[Row] = [
    row
    for operator in LINKS
    for row in (
        *rows(
            operator,
            ({}, (5, 4)),
            ({"grad_scale": 2.5}, (6, 3)),
            ({"grad_scale": -0.5}, (3, 1)),
            ({}, (7,)),
            ({}, (2, 3, 4)),
            ({"grad_scale": 3.0}, (1, 1, 5, 2)),
            ({}, (150, 260)),
            values={"label": probabilities},
        ),
        # Differences of exactly zero: no derivative, but MXNet's answer.
        *rows(
            operator,
            ({"grad_scale": 2.0}, (4, 6)),
            values={"data": lambda *about: thirds(*about).astype(about[2]), "label": thirds},
            differentiable=False,
        ),
        *rows(
            operator,
            ({"use_sample_weight": True}, (6, 4)),
            ({"use_sample_weight": True, "grad_scale": 2.0}, (5, 1)),
            ({"use_sample_weight": True}, (100, 401)),
            values={"label": probabilities},
            peers=(),
        ),
    )
]

REFERENCES: dict[str, Reference] = {
    operator: partial(regression_output, operator) for operator in LINKS
}

OBJECTIVES: dict[str, Objective] = dict.fromkeys(LINKS, regression_objective)
