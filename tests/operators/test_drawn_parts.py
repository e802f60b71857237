"""Random operators draw the same numbers for micro-batches as for the entire batch."""

from __future__ import annotations

import numpy as np
import pytest
from operator_harness import all_implementations

from mxrun.contract.call import Array, Conditions, forward
from mxrun.operator.register import create

PARTS = 3
DRAWING = {"Dropout": {"p": 0.4}, "LeakyReLU": {"act_type": "rrelu"}}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [1, 7, 64, 5003])
@pytest.mark.parametrize("name", DRAWING)
def test_R1_a_part_of_a_batch_draws_its_rows_of_the_whole(
    name: str, width: int, threads: int
) -> None:
    """With row widths that end within the four words that are drawn together, and others."""
    prop = create(name, DRAWING[name])
    data = -np.random.default_rng(1).uniform(1, 2, (2 * PARTS, width)).astype("float32")

    def outputs(rows: Array, part: int) -> dict[str, list[Array]]:
        found = {}
        for implementation in all_implementations(prop):
            conditions = Conditions(threads, part=part)
            blank = [np.empty_like(rows), np.empty_like(rows)]
            run = forward(implementation, prop, [rows], blank, conditions=conditions)
            if run is not None:
                found[implementation.name] = run.outputs
        return found

    whole = outputs(data, 0)
    assert len(whole) > 1
    pieces = [outputs(rows, part) for part, rows in enumerate(np.split(data, PARTS))]
    for implementation, arrays in whole.items():
        for index, array in enumerate(arrays):
            together = np.concatenate([piece[implementation][index] for piece in pieces])
            assert together.tobytes() == array.tobytes(), implementation
