"""Deconvolution: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def deconvolution(p: Any, inputs: list[Array]) -> list[Array]:
    """Add every element's multiple of the kernel to a canvas, which is then cropped."""
    data, weight, *bias = inputs
    rank, batch = len(p.kernel), data.shape[0]
    stride, dilate = p.stride or (1,) * rank, p.dilate or (1,) * rank
    pad, adj = p.pad or (0,) * rank, p.adj or (0,) * rank
    sizes = data.shape[2:]
    full = [
        s * (n - 1) + d * (k - 1) + 1
        for s, n, d, k in zip(stride, sizes, dilate, p.kernel, strict=True)
    ]
    if any(p.target_shape):
        spare = [size - asked for size, asked in zip(full, p.target_shape, strict=True)]
        pad, adj = [(x + 1) // 2 for x in spare], [x % 2 for x in spare]
    canvas = np.zeros((batch, p.num_filter, *(f + a for f, a in zip(full, adj, strict=True))))
    share_in, share_out = data.shape[1] // p.num_group, weight.shape[1]
    for c in range(data.shape[1]):
        first = c // share_in * share_out
        for y in np.ndindex(*sizes):
            for k in np.ndindex(*p.kernel):
                at = tuple(i * s + j * d for i, s, j, d in zip(y, stride, k, dilate, strict=True))
                stamp = np.multiply.outer(data[(slice(None), c, *y)], weight[(c, slice(None), *k)])
                canvas[(slice(None), slice(first, first + share_out), *at)] += stamp
    cut = [slice(p, f + a - p) for p, f, a in zip(pad, full, adj, strict=True)]
    result = canvas[(slice(None), slice(None), *cut)].astype(data.dtype)
    for channel, value in enumerate(bias[0] if bias else ()):
        result[:, channel] += value
    return [result]


ROWS: list[Row] = [
    *rows(
        "Deconvolution",
        ({"kernel": (3, 3), "num_filter": 4}, (2, 3, 4, 3)),
        ({"kernel": (4, 4), "num_filter": 16, "stride": (2, 2), "pad": (1, 1)}, (2, 16, 5, 4)),
        (
            {"kernel": (3, 3), "num_filter": 4, "stride": (2, 3), "adj": (1, 2), "pad": (1, 0)},
            (2, 3, 4, 3),
        ),
        ({"kernel": (3, 2), "num_filter": 4, "num_group": 2, "no_bias": False}, (3, 6, 3, 4)),
        ({"kernel": (2, 2), "num_filter": 6, "num_group": 6, "stride": (2, 2)}, (2, 6, 4, 5)),
        ({"kernel": (3, 3), "num_filter": 3, "dilate": (2, 3), "pad": (1, 2)}, (2, 4, 5, 4)),
        (
            {
                "kernel": (3, 3),
                "num_filter": 2,
                "stride": (2, 2),
                "dilate": (2, 1),
                "pad": (1, 1),
                "no_bias": False,
            },
            (2, 3, 4, 4),
        ),
        ({"kernel": (5, 5), "num_filter": 3, "workspace": 0, "pad": (2, 2)}, (3, 4, 5, 5)),
        (
            {"kernel": (3,), "num_filter": 3, "stride": (2,), "pad": (1,), "adj": (1,)},
            (2, 4, 5),
        ),
        ({"kernel": (4,), "num_filter": 3, "stride": (3,), "no_bias": False}, (2, 2, 1)),
        (
            {"kernel": (2, 3, 2), "num_filter": 2, "stride": (2, 1, 2), "no_bias": False},
            (2, 3, 2, 3, 2),
        ),
        ({"kernel": (1, 1), "num_filter": 5}, (2, 3, 4, 4)),
        ({"kernel": (5,), "num_filter": 2, "stride": (3,), "no_bias": False}, (2, 2, 10)),
        (
            {"kernel": (2, 3), "num_filter": 4, "stride": (3, 2), "dilate": (2, 2), "adj": (2, 1)},
            (2, 4, 3, 4),
        ),
    ),
    # MXNet 1.9.1 infers the shape without the pad, as documented, and then runs oneDNN with it.
    *rows(
        "Deconvolution",
        (
            {"kernel": (3, 3), "num_filter": 2, "stride": (2, 2), "target_shape": (8, 9)},
            (2, 3, 4, 4),
        ),
        ({"kernel": (3,), "num_filter": 2, "dilate": (2,), "target_shape": (4,)}, (1, 2, 4)),
        peers=("PyTorch",),
    ),
]

REFERENCES: dict[str, Reference] = {
    "Deconvolution": deconvolution,
}
