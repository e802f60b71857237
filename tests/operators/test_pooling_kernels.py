"""Who computes which kind of pooling: oneDNN what it can, a compiled loop the other sums."""

from __future__ import annotations

from typing import Any

import pytest
from operator_harness import all_implementations, forward
from operator_row import Row

from mxrun.backend.onednn import library

WINDOW = {"kernel": (3, 3), "stride": (2, 2)}
FULL = {**WINDOW, "pooling_convention": "full"}
PADDED = {**WINDOW, "pad": (1, 1)}


def server(parameters: dict[str, Any], shape: tuple[int, ...]) -> str:
    """The first implementation that takes the case."""
    row = Row("Pooling", parameters, shape)
    numpy, *fast = all_implementations(row.create())
    for implementation in (*fast, numpy):
        outputs = row.blank_outputs("float32")
        if forward(implementation, row.create(), row.inputs("float32"), outputs) is not None:
            return implementation.name
    raise AssertionError("nobody pools")


@pytest.mark.skipif(library.load() is None, reason=library.reason())
@pytest.mark.parametrize(
    "parameters",
    [
        PADDED,
        {**FULL, "pad": (1, 1)},
        {**PADDED, "pool_type": "avg"},
        {**PADDED, "pool_type": "avg", "count_include_pad": False},
        {**FULL, "pool_type": "avg"},
        {**FULL, "pool_type": "avg", "pad": (1, 1), "count_include_pad": False},
        {"global_pool": True, "pool_type": "avg"},
    ],
)
def test_onednn_pools_maxima_and_averages(parameters: dict[str, Any]) -> None:
    assert server(parameters, (2, 3, 8, 6)) == "onednn"


@pytest.mark.skipif(library.load() is None, reason=library.reason())
@pytest.mark.parametrize("pool_type", ["max", "avg"])
def test_onednn_pools_under_the_convention_same(pool_type: str) -> None:
    same = {"kernel": (3,), "stride": (2,), "pooling_convention": "same"}
    assert server({**same, "pool_type": pool_type}, (2, 3, 8)) == "onednn"


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({**PADDED, "pool_type": "sum"}, "jit"),
        # Padding counts, but not that beyond what was asked for.
        ({**FULL, "pool_type": "avg", "pad": (1, 1)}, "jit"),
        ({**PADDED, "pool_type": "lp", "p_value": 1}, "numpy"),
        # The last window starts behind the data.
        ({"kernel": (1, 1), "stride": (4, 4), "pooling_convention": "full"}, "numpy"),
    ],
)
def test_others_pool_the_rest(parameters: dict[str, Any], name: str) -> None:
    assert server(parameters, (2, 3, 6, 6)) == name
