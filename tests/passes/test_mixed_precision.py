"""Sum of a bfloat16 and a float32 branch: the same gradients, fused and not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu, executor_for
from networks import set_first_values, softmax, with_precisions

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.executor.executor import Executor
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable

Array = npt.NDArray[Any]
INPUTS = {"data": TensorSpec((8, 16, 12, 12)), "label": TensorSpec((8,), "int32")}
CONVOLUTION = {"num_filter": 16, "kernel": (3, 3), "pad": (1, 1), "no_bias": True}
# Relative to the largest gradient: roundings to 8 bits, and gradients that a rectifier passes if
# rounding moves a number across zero.
TOLERANCE = 0.12


def residual(layers: dict[str, str]) -> Symbol:
    """conv1 → bn1 and conv2 → bn2, added and clipped; layers with precisions of their own."""
    with fresh_names():
        stem = apply("Activation", {"data": variable("data")}, {"act_type": "tanh"}, "stem")
        branches = []
        for number in (1, 2):
            made = apply("Convolution", {"data": stem}, CONVOLUTION, f"conv{number}")
            branches.append(apply("BatchNorm", {"data": made}, {"fix_gamma": False}, f"bn{number}"))
        total = apply("elemwise_add", dict(zip(("lhs", "rhs"), branches, strict=True)), {}, "add")
        active = apply("Activation", {"data": total}, {"act_type": "relu"}, "relu")
        dense = apply("FullyConnected", {"data": active}, {"num_hidden": 10}, "fc")
        symbol = softmax(dense)
    return with_precisions(symbol, layers)


def gradients(symbol: Symbol, precision: str, fuse: bool) -> tuple[dict[str, Array], Executor]:
    wanted = tuple(name for name in symbol.list_arguments() if name not in INPUTS)
    request = CompileRequest(
        INPUTS, gradients=wanted, phases=(TRAIN,), device=cpu(2), precision=precision, fuse=fuse
    )
    executor = executor_for(compile_plan(symbol, request))
    set_first_values(executor, 5)
    executor.run(TRAIN)
    return {name: executor.result(TRAIN, f"{name}_grad").read() for name in wanted}, executor


FIRST = {"conv1": "bfloat16", "bn1": "bfloat16"}
SECOND = {"conv2": "bfloat16", "bn2": "bfloat16"}
FULL_BRANCH = {"conv1": "float32", "bn1": "float32"}


@pytest.mark.parametrize(
    ("precision", "layers", "total"),
    [
        ("float32", FIRST, "float32"),
        ("float32", SECOND, "float32"),
        ("float32", {"conv1": "bfloat16"}, "float32"),
        ("float32", {"conv2": "bfloat16"}, "float32"),
        ("float32", {**FIRST, "add": "bfloat16"}, "bfloat16"),
        ("float32", {**SECOND, "add": "bfloat16", "relu": "bfloat16"}, "bfloat16"),
        ("bfloat16", FULL_BRANCH, "float32"),
        ("bfloat16", {**FULL_BRANCH, "add": "bfloat16"}, "bfloat16"),
    ],
)
def test_gradients_are_the_same_fused_and_not(
    precision: str, layers: dict[str, str], total: str
) -> None:
    symbol = residual(layers)
    plain, executor = gradients(symbol, precision, fuse=False)
    dtypes = {v.name: v.spec.dtype for v in executor.plan.phases[TRAIN].graph.values}
    assert "bfloat16" in (dtypes["conv1_output"], dtypes["conv2_output"])
    assert dtypes["add_output"] == total
    fused, _ = gradients(symbol, precision, fuse=True)
    full, _ = gradients(residual({}), "float32", fuse=True)
    for name, expected in plain.items():
        scale = float(np.abs(full[name]).max())
        assert expected.any(), name
        np.testing.assert_array_equal(fused[name], expected, err_msg=name)
        np.testing.assert_allclose(expected, full[name], 0, TOLERANCE * scale, err_msg=name)
    assert any(not np.array_equal(plain[name], full[name]) for name in plain)
