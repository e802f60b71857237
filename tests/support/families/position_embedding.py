"""position_embedding: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from families.indexing import between
from operator_row import Reference, rows

Array = npt.NDArray[Any]


def position_embedding(p: Any, inputs: list[Array]) -> list[Array]:
    """Add one vector at a time."""
    data, weight, *position = inputs
    first = int(position[0][0]) if position else 0
    output = np.empty_like(data)
    for n, t in np.ndindex(*data.shape[:2]):
        output[n, t] = data[n, t] + weight[first + t]
    return [output]


PEERS: dict[str, Any] = {
    "peers": ("PyTorch",),
    "no_peer": "MXNet 1.9.1 has no position_embedding.",
}
ROWS = rows(
    "position_embedding",
    ({"max_length": 4}, (2, 4, 3)),
    ({"max_length": 7}, (3, 5, 16)),
    ({"max_length": 1}, (2, 1, 5)),
    ({"max_length": 9}, (1, 2, 33)),
    ({"max_length": 70}, (5, 64, 40)),
    **PEERS,
)
for first, length, shape in (
    (0, 4, (2, 1, 3)),
    (3, 4, (3, 1, 33)),
    (5, 12, (2, 7, 40)),
    (1, 9, (1, 4, 16)),
    (60, 77, (4, 16, 128)),
):
    ROWS += rows(
        "position_embedding",
        ({"max_length": length, "use_position": True}, shape),
        values={"position": between(first, first + 1)},
        **PEERS,
    )

REFERENCES: dict[str, Reference] = {"position_embedding": position_embedding}
