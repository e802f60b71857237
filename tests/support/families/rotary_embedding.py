"""rotary_embedding: cases and formula."""

from __future__ import annotations

import cmath
from typing import Any

import numpy as np
import numpy.typing as npt
from families.indexing import between
from operator_row import Reference, rows

Array = npt.NDArray[Any]


def rotary_embedding(p: Any, inputs: list[Array]) -> list[Array]:
    """Rotate one pair at a time, as a complex number."""
    data, *position = inputs
    first = int(position[0][0]) if position else 0
    output, width = data.copy(), data.shape[2] // p.num_heads
    half = width // 2
    heads = range(p.num_heads if p.rotated_heads is None else p.rotated_heads)
    for n, t in np.ndindex(*data.shape[:2]):
        for head in heads:
            for i in range(half):
                x, y = head * width + i, head * width + half + i
                turned = complex(data[n, t, x], data[n, t, y])
                turned *= cmath.exp(1j * (first + t) * p.base ** (-2 * i / width))
                output[n, t, x], output[n, t, y] = turned.real, turned.imag
    return [output]


PEERS: dict[str, Any] = {
    "peers": ("PyTorch",),
    "no_peer": "MXNet 1.9.1 has no rotary_embedding.",
}
ROWS = rows(
    "rotary_embedding",
    ({"num_heads": 1}, (2, 4, 2)),
    ({"num_heads": 2}, (3, 5, 12)),
    ({"num_heads": 3, "base": 100.0}, (2, 7, 96)),
    ({"num_heads": 6, "rotated_heads": 4}, (2, 3, 24)),
    ({"num_heads": 2, "rotated_heads": 1, "base": 0.5}, (1, 6, 68)),
    ({"num_heads": 4}, (4, 40, 128)),
    **PEERS,
)
for first, parameters, shape in (
    (0, {"num_heads": 2, "max_length": 1}, (2, 1, 4)),
    (7, {"num_heads": 3, "max_length": 8, "base": 100.0}, (2, 1, 96)),
    (2, {"num_heads": 6, "rotated_heads": 4, "max_length": 9}, (3, 5, 24)),
    (1, {"num_heads": 2, "rotated_heads": 1, "max_length": 7}, (1, 6, 68)),
    (40, {"num_heads": 4}, (4, 16, 128)),
):
    ROWS += rows(
        "rotary_embedding",
        ({**parameters, "use_position": True}, shape),
        values={"position": between(first, first + 1)},
        **PEERS,
    )

REFERENCES: dict[str, Reference] = {"rotary_embedding": rotary_embedding}
