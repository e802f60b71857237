"""Sums within operators lose no digits, however many terms they have.

All terms are 0.1, or multiples of it, so that the roundings of a running float32 sum do not cancel
out: 20,000 terms lose three digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from operator_harness import BackwardData, all_implementations, backward, forward

from mxrun.operator.register import create
from mxrun.operator.shape import require_complete

Array = npt.NDArray[Any]
ROWS = 20_001
TENTH = np.float64(np.float32(0.1))


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def ids(*shape: int) -> Array:
    return np.ones(shape, np.int32)


# Operator, parameters, inputs, the argument whose gradient is the sum of out_grad, and its shape.
SUMS: list[tuple[str, dict[str, object], list[Array], int, int]] = [
    ("FullyConnected", {"num_hidden": 3}, [ones(ROWS, 2), ones(3, 2), ones(3)], 2, ROWS),
    ("FullyConnected", {"num_hidden": 70}, [ones(ROWS, 2), ones(70, 2), ones(70)], 2, ROWS),
    (
        "Convolution",
        {"kernel": (1,), "num_filter": 3},
        [ones(3, 2, ROWS), ones(3, 2, 1), ones(3)],
        2,
        3 * ROWS,
    ),
    ("_bias_activation", {"act_type": "gelu"}, [40 * ones(ROWS, 3), ones(3)], 1, ROWS),
    ("LayerNorm", {}, [ones(ROWS, 3), ones(3), ones(3)], 2, ROWS),
    ("broadcast_add", {}, [ones(ROWS, 3), ones(1, 3)], 1, ROWS),
    ("Embedding", {"input_dim": 2, "output_dim": 70}, [ids(ROWS), ones(2, 70)], 1, ROWS),
    ("take", {}, [ones(2, 3), ids(ROWS)], 0, ROWS),
    ("take", {"axis": 1}, [ones(2, 2), ids(ROWS)], 0, ROWS),
    ("LeakyReLU", {"act_type": "prelu"}, [-ones(ROWS, 3), ones(3)], 1, -ROWS),
    ("LeakyReLU", {"act_type": "prelu"}, [-ones(2, 3, ROWS), ones(3)], 1, -2 * ROWS),
]


@pytest.mark.parametrize(("name", "parameters", "inputs", "which", "count"), SUMS, ids=str)
def test_gradients_that_are_sums(
    name: str, parameters: dict[str, object], inputs: list[Array], which: int, count: int
) -> None:
    prop = create(name, parameters)
    shapes = prop.infer_shape([each.shape for each in inputs], [None] * len(prop.list_outputs()))
    outputs = [np.zeros(require_complete(shape), np.float32) for shape in shapes.outputs]
    checked = 0
    for implementation in all_implementations(prop):
        run = forward(implementation, prop, inputs, outputs)
        if run is None:
            continue
        heads = [np.full_like(each, 0.1) for each in run.outputs]
        blank = [np.full(each.shape, np.nan, np.float32) for each in inputs]
        found = backward(implementation, prop, BackwardData(heads, inputs, run.outputs), blank, run)
        # The ids name one row or column of a table, whose others have no gradient.
        sums = found[which][found[which] != 0]
        np.testing.assert_allclose(sums, count * TENTH, rtol=1e-6)
        assert sums.size
        checked += 1
    assert checked >= 2


@pytest.mark.parametrize("shape", [(1, 3, ROWS), (1, 1, 141, 141)])
def test_averages_of_large_windows(shape: tuple[int, ...]) -> None:
    prop = create("Pooling", {"pool_type": "avg", "global_pool": True})
    data = np.full(shape, 0.1, np.float32)
    output = np.zeros((*shape[:2], *(1 for _ in shape[2:])), np.float32)
    for implementation in all_implementations(prop):
        run = forward(implementation, prop, [data], [output])
        if run is not None:
            np.testing.assert_allclose(run.outputs[0], np.full_like(output, 0.1), rtol=1e-6)
