"""Pooling: cases and formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def pooling(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute one window at a time, cut out of the data by Python slices."""
    (data,) = inputs
    sizes = data.shape[2:]
    rank = len(sizes)
    kernel, stride, pad = p.kernel, p.stride or (1,) * rank, p.pad or (0,) * rank
    if p.global_pool:
        kernel, stride, pad = sizes, (1,) * rank, (0,) * rank
    counts = []
    for size, k, s, margin in zip(sizes, kernel, stride, pad, strict=True):
        room = size + 2 * margin - k
        rounded = {"valid": room // s + 1, "full": math.ceil(room / s) + 1}
        counts.append(rounded.get(p.pooling_convention, math.ceil(size / s)))
    result = np.empty((*data.shape[:2], *counts), data.dtype)
    for index in np.ndindex(*counts):
        area, cut = 1, []
        for i, size, k, s, margin in zip(index, sizes, kernel, stride, pad, strict=True):
            start, stop = i * s - margin, i * s - margin + k
            inside = range(max(start, 0), min(stop, size))
            cut.append(slice(inside.start, max(inside.start, inside.stop)))
            padded = len(range(start, min(stop, size + margin)))
            area *= len(inside) if p.count_include_pad is False else padded
        window = data[(slice(None), slice(None), *cut)].reshape(*data.shape[:2], -1)
        result[(slice(None), slice(None), *index)] = _pooled(p, window, area)
    return [result]


def _pooled(p: Any, window: Array, area: int) -> Array:
    if p.pool_type == "max":
        return np.asarray(window.max(axis=-1))
    if p.pool_type == "lp":
        total = sum(window[..., i] ** p.p_value for i in range(window.shape[-1]))
        return np.asarray(np.sign(total) * np.abs(total) ** (1 / p.p_value))
    total = np.asarray(window.sum(axis=-1))
    return total / area if p.pool_type == "avg" else total


ROWS: list[Row] = [
    *rows(
        "Pooling",
        ({"kernel": (2, 2), "stride": (2, 2)}, (2, 3, 6, 4)),
        ({"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}, (2, 3, 7, 6)),
        ({"kernel": (3, 2), "stride": (2, 1), "pool_type": "avg", "pad": (1, 1)}, (2, 2, 6, 5)),
        (
            {
                "kernel": (3, 3),
                "stride": (2, 2),
                "pad": (1, 1),
                "pool_type": "avg",
                "count_include_pad": False,
            },
            (1, 3, 8, 5),
        ),
        (
            {
                "kernel": (3, 3),
                "stride": (2, 2),
                "pool_type": "avg",
                "pooling_convention": "full",
                "pad": (1, 1),
            },
            (2, 2, 6, 6),
        ),
        ({"kernel": (3, 3), "stride": (2, 2), "pooling_convention": "full"}, (2, 2, 6, 7)),
        ({"kernel": (2, 3), "pool_type": "sum"}, (2, 2, 4, 5)),
        ({"kernel": (2, 2), "stride": (2, 2), "pool_type": "lp", "p_value": 2}, (2, 2, 4, 6)),
        ({"kernel": (2, 2), "pool_type": "lp", "p_value": 1}, (1, 2, 3, 4)),
        ({"global_pool": True, "pool_type": "avg"}, (2, 3, 5, 4)),
        ({"global_pool": True, "kernel": (2, 2), "pad": (1, 1)}, (2, 3, 4, 4)),
        ({"kernel": (2, 2, 2), "stride": (2, 1, 2), "pool_type": "avg"}, (1, 2, 4, 3, 4)),
        ({"kernel": (3,), "stride": (2,), "pad": (1,)}, (2, 2, 9)),
        ({"kernel": (3, 2), "stride": (2, 3), "pad": (1, 1), "pool_type": "sum"}, (2, 3, 6, 5)),
        ({"kernel": (2, 2, 3), "stride": (1, 2, 2), "pool_type": "sum"}, (2, 17, 3, 4, 5)),
        ({"global_pool": True, "pool_type": "sum"}, (2, 3, 2, 4)),
        ({"kernel": (4,), "stride": (3,), "pad": (2,), "pool_type": "sum"}, (2, 3, 8)),
        # Padding on the right: none requested, more than on the left, and both.
        (
            {
                "kernel": (3, 3),
                "stride": (2, 2),
                "pool_type": "avg",
                "pooling_convention": "full",
            },
            (2, 3, 6, 8),
        ),
        (
            {
                "kernel": (3, 3),
                "stride": (3, 2),
                "pad": (1, 1),
                "pooling_convention": "full",
            },
            (2, 2, 6, 6),
        ),
        (
            {
                "kernel": (3, 3, 2),
                "stride": (2, 2, 2),
                "pad": (1, 0, 0),
                "pool_type": "avg",
                "pooling_convention": "full",
            },
            (1, 2, 6, 6, 3),
        ),
        (
            {
                "kernel": (3, 3),
                "stride": (2, 2),
                "pad": (1, 1),
                "pool_type": "avg",
                "pooling_convention": "full",
                "count_include_pad": False,
            },
            (2, 2, 6, 8),
        ),
        (
            {
                "kernel": (3,),
                "stride": (2,),
                "pad": (1,),
                "pool_type": "sum",
                "pooling_convention": "full",
            },
            (2, 2, 6),
        ),
        # Windows of padding alone.
        ({"kernel": (2,), "stride": (2,), "pad": (3,), "pool_type": "sum"}, (2, 2, 5)),
        ({"kernel": (2, 1), "stride": (1, 2), "pad": (2, 1), "pool_type": "sum"}, (2, 2, 3, 4)),
        (
            {
                "kernel": (1, 2),
                "stride": (2, 2),
                "pad": (1, 3),
                "pool_type": "lp",
                "p_value": 2,
                "pooling_convention": "full",
            },
            (2, 2, 3, 4),
        ),
    ),
    # PyTorch takes no root of a negative sum.
    *rows(
        "Pooling",
        ({"kernel": (3,), "stride": (2,), "pool_type": "lp", "p_value": 3}, (2, 2, 7)),
        peers=("MXNet",),
    ),
    # MXNet 1.9.1 has the convention `same`, but its CPU build can run none of it.
    *rows(
        "Pooling",
        ({"kernel": (3,), "stride": (2,), "pooling_convention": "same"}, (2, 2, 7)),
        ({"kernel": (3,), "stride": (2,), "pooling_convention": "same"}, (2, 2, 8)),
        (
            {"kernel": (4,), "stride": (3,), "pooling_convention": "same", "pool_type": "avg"},
            (2, 2, 7),
        ),
        (
            {"kernel": (2,), "stride": (3,), "pooling_convention": "same", "pool_type": "sum"},
            (2, 2, 7),
        ),
        peers=(),
    ),
]

REFERENCES: dict[str, Reference] = {
    "Pooling": pooling,
}
