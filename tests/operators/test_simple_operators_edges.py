"""Unary maths at special values: infinities, NaN, both zeros, poles and the ends of domains."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from families.unary import FUNCTIONS
from operator_harness import BackwardData, all_implementations, backward, forward
from oracles.peer import MXNet

from mxrun.operator.property import GradientKind
from mxrun.operator.register import create

INFINITE = float("inf")
EDGES = np.array(
    [
        *(-INFINITE, INFINITE, np.nan, -0.0, 0.0, -1, 1, -2, 2, -3.5, -2.5, -1.5, -0.5, 0.5),
        *(1.5, 2.5, 40, -40, 100, 1e-6, -1e-6, 0.999, -0.999, 1.001, 1e4, -1e4),
    ],
    "float32",
)
# Functions in which the input enters as the difference of two nearly equal numbers, or whose angle
# float32 cannot hold more precisely.
TOLERANCES = {"arcsin": 1e-4, "arccos": 1e-4, "arctanh": 1e-4, "arccosh": 1e-3, "tan": 1e-4}


@pytest.fixture(scope="module")
def mxnet() -> Iterator[MXNet]:
    reason = MXNet.unavailable()
    if reason is not None:
        pytest.skip(reason)
    peer = MXNet()
    yield peer
    peer.close()


@pytest.mark.parametrize("name", [*FUNCTIONS, "hard_sigmoid", "smooth_l1"])
def test_O1_T12_edges_are_mxnets(name: str, mxnet: MXNet) -> None:
    prop = create(name, {})
    out_grad = np.ones_like(EDGES)
    theirs = mxnet.run_operator(
        name, {}, {"data": EDGES}, [out_grad], is_train=True, gradients=True
    )
    tolerance = TOLERANCES.get(name, 1e-5)
    for implementation in all_implementations(prop):
        run = forward(implementation, prop, [EDGES], [np.zeros_like(EDGES)])
        assert run is not None
        compare(run.outputs[0], theirs.outputs[0], 1e-5)
        if prop.list_gradients() == (GradientKind.COMPUTES,):
            given = BackwardData([out_grad], [EDGES], run.outputs)
            (gradient,) = backward(implementation, prop, given, [np.zeros_like(EDGES)], run)
            compare(gradient, theirs.gradients["data"], tolerance)
        else:
            assert not theirs.gradients["data"].any()


def compare(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    wrong = [
        f"f({x}) = {mine}, not {other}"
        for x, mine, other in zip(EDGES, ours, theirs, strict=True)
        if not np.isclose(mine, other, rtol=tolerance, atol=1e-30, equal_nan=True)
    ]
    assert not wrong, wrong
