"""Convolution: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def convolution(p: Any, inputs: list[Array]) -> list[Array]:
    """Windows of the padded data, contracted with the weight by einsum, group by group."""
    data, weight, *bias = inputs
    rank = len(p.kernel)
    stride, dilate = p.stride or (1,) * rank, p.dilate or (1,) * rank
    padded = np.pad(data, [(0, 0), (0, 0), *((pad, pad) for pad in p.pad or (0,) * rank)])
    extents = [d * (k - 1) + 1 for d, k in zip(dilate, p.kernel, strict=True)]
    windows = sliding_window_view(padded, extents, axis=tuple(range(2, 2 + rank)))
    steps = [*(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilate)]
    windows = windows[(slice(None), slice(None), *steps)]
    y, k = "yxz"[:rank], "kji"[:rank]
    parts = [
        np.einsum(f"nc{y}{k},oc{k}->no{y}", piece, kernel)
        for piece, kernel in zip(
            np.split(windows, p.num_group, axis=1), np.split(weight, p.num_group), strict=True
        )
    ]
    result = np.concatenate(parts, axis=1)
    for channel, value in enumerate(bias[0] if bias else ()):
        result[:, channel] += value
    return [result]


ROWS: list[Row] = [
    *rows(
        "Convolution",
        ({"kernel": (3, 3), "num_filter": 4, "pad": (1, 1)}, (3, 2, 6, 5)),
        ({"kernel": (1, 1), "num_filter": 5, "no_bias": True}, (2, 3, 4, 4)),
        ({"kernel": (3, 2), "num_filter": 4, "stride": (2, 1), "num_group": 2}, (2, 4, 7, 6)),
        ({"kernel": (3, 3), "num_filter": 2, "dilate": (2, 2), "pad": (2, 1)}, (2, 3, 8, 7)),
        ({"kernel": (3,), "num_filter": 3, "stride": (2,), "pad": (1,)}, (2, 2, 9)),
        ({"kernel": (2, 3, 2), "num_filter": 2, "pad": (0, 1, 1)}, (2, 2, 4, 5, 3)),
        ({"kernel": (5, 5), "num_filter": 6, "num_group": 3, "workspace": 0}, (3, 6, 5, 6)),
        (
            {"kernel": (3, 3), "num_filter": 16, "stride": (2, 2), "pad": (1, 1), "no_bias": True},
            (2, 16, 9, 9),
        ),
    ),
]

REFERENCES: dict[str, Reference] = {
    "Convolution": convolution,
}
