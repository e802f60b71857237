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
        # Depthwise: as in MobileNet, with odd geometry, two filters a channel, one and three axes.
        ({"kernel": (3, 3), "num_filter": 16, "num_group": 16, "pad": (1, 1)}, (2, 16, 7, 6)),
        (
            {
                "kernel": (3, 5),
                "num_filter": 6,
                "num_group": 6,
                "stride": (2, 3),
                "pad": (0, 2),
            },
            (3, 6, 8, 9),
        ),
        ({"kernel": (3, 3), "num_filter": 8, "num_group": 4, "no_bias": True}, (2, 4, 5, 5)),
        (
            {
                "kernel": (3, 3),
                "num_filter": 5,
                "num_group": 5,
                "dilate": (2, 3),
                "pad": (2, 3),
            },
            (2, 5, 7, 8),
        ),
        ({"kernel": (3,), "num_filter": 17, "num_group": 17, "pad": (1,)}, (2, 17, 9)),
        ({"kernel": (3, 3, 3), "num_filter": 4, "num_group": 4, "pad": (1,) * 3}, (2, 4, 3, 4, 5)),
        # Groups as in ResNeXt, and over one and three axes.
        ({"kernel": (3, 3), "num_filter": 64, "num_group": 32, "pad": (1, 1)}, (2, 64, 5, 6)),
        ({"kernel": (5,), "num_filter": 9, "num_group": 3, "stride": (3,)}, (2, 6, 13)),
        (
            {"kernel": (2, 1, 3), "num_filter": 4, "num_group": 2, "stride": (1, 2, 1)},
            (1, 6, 3, 5, 4),
        ),
        # Dilation and stride at once, and in depth: oneDNN has reference code alone for these.
        (
            {"kernel": (3, 2), "num_filter": 4, "stride": (2, 2), "dilate": (2, 3), "pad": (2, 1)},
            (2, 3, 8, 7),
        ),
        ({"kernel": (3,), "num_filter": 3, "stride": (3,), "dilate": (2,)}, (2, 4, 12)),
        (
            {"kernel": (2, 2, 3), "num_filter": 4, "num_group": 2, "dilate": (2, 1, 2)},
            (2, 4, 5, 4, 7),
        ),
        # Sizes that are not multiples of the stride, with and without positions that no window
        # reads.
        ({"kernel": (5,), "num_filter": 2, "stride": (3,)}, (2, 2, 32)),
        ({"kernel": (5,), "num_filter": 2, "stride": (3,)}, (2, 2, 34)),
        ({"kernel": (1, 5), "num_filter": 2, "stride": (2, 3), "pad": (0, 1)}, (1, 2, 4, 32)),
        ({"kernel": (5,), "num_filter": 2, "stride": (3,), "dilate": (2,)}, (1, 2, 41)),
        (
            {"kernel": (1, 1, 5), "num_filter": 2, "stride": (2, 2, 3), "pad": (0, 0, 1)},
            (1, 2, 4, 2, 35),
        ),
        # The shapes of a small ResNet: first layer, halving, projection.
        ({"kernel": (3, 3), "num_filter": 16, "pad": (1, 1), "no_bias": True}, (2, 3, 8, 8)),
        (
            {"kernel": (1, 1), "num_filter": 32, "stride": (2, 2), "no_bias": True},
            (2, 16, 8, 8),
        ),
        # One position, and a kernel larger than the data it sees.
        ({"kernel": (1, 1), "num_filter": 2}, (1, 3, 1, 1)),
        ({"kernel": (3, 3), "num_filter": 2, "pad": (1, 1)}, (1, 1, 1, 2)),
        ({"kernel": (1, 2), "num_filter": 2, "pad": (1, 2)}, (1, 2, 3, 2)),
    ),
]

REFERENCES: dict[str, Reference] = {
    "Convolution": convolution,
}
