"""Optimizer updates: cases and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def sgd(p: Any, inputs: list[Array], momentum: bool = False) -> list[Array]:
    """MXNet's SGDKernel and SGDMomKernel, one element at a time in the weight's type."""
    weight, grad = inputs[:2]
    kind = weight.dtype.type
    rate = kind(p.lr) * kind(inputs[-1][0]) if p.scheduled else kind(p.lr)
    updated, moments = np.empty_like(weight), np.empty_like(weight)
    for i in range(weight.size):
        gradient = kind(p.rescale_grad) * grad.flat[i]
        if p.clip_gradient >= 0:
            gradient = max(min(gradient, kind(p.clip_gradient)), -kind(p.clip_gradient))
        gradient = gradient + kind(p.wd) * weight.flat[i]
        step = rate * gradient
        if momentum:
            moments.flat[i] = kind(p.momentum) * inputs[2].flat[i] - step
            updated.flat[i] = weight.flat[i] + moments.flat[i]
        else:
            updated.flat[i] = weight.flat[i] - step
    return [updated, moments] if momentum else [updated]


ROWS: list[Row] = [
    *rows(
        "sgd_update",
        ({"lr": 0.1}, (4, 3)),
        ({"lr": 0.1, "wd": 0.01}, (9001,)),
        ({"lr": 0.5, "rescale_grad": 0.25}, (2, 3, 2, 2)),
        ({"lr": 0.1, "clip_gradient": 0.5, "wd": 0.1}, (5, 3)),
        ({"lr": 0.1, "clip_gradient": 0.0, "lazy_update": False}, (3,)),
    ),
    *rows("sgd_update", ({"lr": 0.1, "wd": 0.01, "scheduled": True}, (4, 3)), peers=()),
    *rows(
        "sgd_mom_update",
        ({"lr": 0.1}, (4, 3)),
        ({"lr": 0.1, "momentum": 0.9}, (7,)),
        ({"lr": 0.1, "momentum": 0.9, "wd": 0.01, "rescale_grad": 0.125}, (2, 3, 2, 2)),
        ({"lr": 0.1, "momentum": 0.5, "clip_gradient": 0.5, "wd": 0.1}, (5, 3)),
        ({"lr": 1.0, "momentum": 0.9, "lazy_update": False}, (10007,)),
    ),
    *rows("sgd_update", ({"lr": 0.1, "wd": 0.01, "scheduled": True}, (4, 3)), peers=()),
    *rows(
        "sgd_mom_update",
        ({"lr": 0.1}, (4, 3)),
        ({"lr": 0.1, "momentum": 0.9}, (7,)),
        ({"lr": 0.1, "momentum": 0.9, "wd": 0.01, "rescale_grad": 0.125}, (2, 3, 2, 2)),
        ({"lr": 0.1, "momentum": 0.5, "clip_gradient": 0.5, "wd": 0.1}, (5, 3)),
        ({"lr": 1.0, "momentum": 0.9, "lazy_update": False}, (10007,)),
    ),
    *rows(
        "sgd_mom_update",
        ({"lr": 0.1, "momentum": 0.9, "wd": 0.01, "scheduled": True}, (4, 3)),
        peers=(),
    ),
]

REFERENCES: dict[str, Reference] = {
    "sgd_update": sgd,
    "sgd_mom_update": lambda p, inputs: sgd(p, inputs, momentum=True),
}
