"""smooth_l1: its joints, ranks and a loss made of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from executors import executor_for
from networks import rule
from simple_registration import run_alone

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import apply, fresh_names, variable


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_Q10_smooth_l1_at_its_joints(sigma: float) -> None:
    joint = 1 / sigma**2
    data = np.array([0, joint, -joint, 1e6, -1e6], "float64")
    output, gradient = run_alone("smooth_l1", {"scalar": sigma}, data)
    far = 1e6 - joint / 2
    np.testing.assert_allclose(output, [0, joint / 2, joint / 2, far, far], rtol=1e-12)
    np.testing.assert_allclose(gradient, [0, 1, -1, 1, -1], rtol=1e-12)
    near = joint * (1 + np.array([-1e-9, 1e-9]))
    output, gradient = run_alone("smooth_l1", {"scalar": sigma}, near)
    np.testing.assert_allclose(output[0], output[1], rtol=1e-8)
    np.testing.assert_allclose(gradient[0], gradient[1], rtol=1e-8)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (2, 3, 4, 5)])
def test_T8_smooth_l1_of_every_rank(shape: tuple[int, ...]) -> None:
    data = np.linspace(-3, 3, math.prod(shape), dtype="float32").reshape(shape)
    flat = run_alone("smooth_l1", {}, data.ravel())
    shaped = run_alone("smooth_l1", {}, data)
    for one, other in zip(flat, shaped, strict=True):
        np.testing.assert_array_equal(one.reshape(shape), other)


def test_Q10_smooth_l1_within_a_composite_trains() -> None:
    """loss = w_out * smooth_l1(w_in * (x - y)), as in Fast R-CNN."""
    with fresh_names():
        distance = apply("elemwise_sub", {"lhs": variable("x"), "rhs": variable("y")}, {}, "minus")
        weighed = apply("elemwise_mul", {"lhs": variable("w_in"), "rhs": distance}, {}, "weighed")
        loss = apply("smooth_l1", {"data": weighed}, {"scalar": 2.0}, "smooth")
        product = apply("elemwise_mul", {"lhs": variable("w_out"), "rhs": loss}, {}, "product")
        symbol = apply("MakeLoss", {"data": product}, {}, "loss")
    shape = (4, 8)
    specs = {name: TensorSpec(shape) for name in ("x", "w_in", "w_out")}
    plan = compile_plan(symbol, CompileRequest(inputs=specs, rules={"y": rule(wd=0.0)}))
    executor = executor_for(plan)
    random = np.random.default_rng(0)
    for name in ("x", "y"):
        executor.tensor(name).write(random.standard_normal(shape))
    executor.tensor("w_out").write(1.0)
    w_in = np.ones(shape)
    w_in[:, 0] = 0
    executor.tensor("w_in").write(w_in)
    before = executor.tensor("y").read()
    for _ in range(200):
        executor.run(TRAIN)
    x, y = executor.tensor("x").values(), executor.tensor("y").values()
    assert np.abs(x - y)[:, 1:].max() < 0.01
    np.testing.assert_array_equal(y[:, 0], before[:, 0])
