"""FullyConnected's kernels: in bfloat16, and with constant weights."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu, executor_for

from mxrun import library
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.device.cpu.measurement import has_bfloat16
from mxrun.device.cpu.onednn import library as onednn_library
from mxrun.executor.executor import Executor
from mxrun.graph.graph import StepKind
from mxrun.graph.phases import EVALUATE, PREPARE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, group, variable
from mxrun.operator.kernel import ForwardRequest, OpReqType
from mxrun.operator.register import create, implementations

pytestmark = pytest.mark.skipif(onednn_library.load() is None, reason=onednn_library.reason())
needs_bfloat16 = pytest.mark.skipif(
    not has_bfloat16(), reason="the processor does not multiply bfloat16"
)

library.load()

Array = npt.NDArray[Any]
ROWS, FEATURES, MIDDLE, HIDDEN = 6, 20, 300, 7
WEIGHTS = ("first_weight", "second_weight", "second_bias")


def network() -> Symbol:
    """data → first → second, whose outputs `factors` weigh in the loss."""
    with fresh_names():
        first = {"num_hidden": MIDDLE, "no_bias": True}
        inner = apply("FullyConnected", {"data": variable("data")}, first, "first")
        outer = apply("FullyConnected", {"data": inner}, {"num_hidden": HIDDEN}, "second")
        weighed = apply("elemwise_mul", {"lhs": outer, "rhs": variable("factors")}, {}, "weighed")
        return group([apply("MakeLoss", {"data": weighed}, {}, "loss"), inner, outer])


def executor() -> Executor:
    request = CompileRequest(
        {"data": TensorSpec((ROWS, FEATURES)), "factors": TensorSpec((ROWS, HIDDEN))},
        gradients=("data", *WEIGHTS),
        phases=(TRAIN,),
        device=cpu(2),
        precision="bfloat16",
    )
    return executor_for(compile_plan(network(), request))


def rounded(array: Array) -> Array:
    return array.astype(ml_dtypes.bfloat16).astype("float32")


@needs_bfloat16
def test_sums_are_exact_and_activations_are_rounded_once() -> None:
    """Uses integers, whose float32 sums do not depend on the order."""
    bound, random = executor(), np.random.default_rng(5)
    for block in bound.plan.pinned:
        tensor = bound.tensor(block.name)
        tensor.write(random.integers(-15, 16, tensor.spec.shape))
    bound.run(TRAIN)
    names = ("data", "factors", *WEIGHTS)
    data, factors, first, second, bias = (bound.tensor(name).values() for name in names)
    inner = rounded(data @ first.T)
    inner_grad = rounded(factors @ second)
    expected = {
        "first_output": inner,
        "second_output": rounded(inner @ second.T + bias),
        "data_grad": inner_grad @ first,
        "first_weight_grad": inner_grad.T @ data,
        "second_weight_grad": factors.T @ inner,
        "second_bias_grad": factors.sum(axis=0),
    }
    assert not (inner == data @ first.T).all()
    for name, array in expected.items():
        np.testing.assert_array_equal(bound.result(TRAIN, name).values(), array, name)


@needs_bfloat16
def test_one_copy_of_a_weight_in_bfloat16_serves_both_directions() -> None:
    steps = executor().plan.phases[TRAIN].graph.steps
    for weight in ("first_weight", "second_weight"):
        copies = [step for step in steps if step.name.startswith(f"{weight}:reorder")]
        assert len(copies) == 1
        read = [step for step in steps if copies[0].outputs[0] in step.inputs]
        assert [step.kind for step in read] == [StepKind.FORWARD, StepKind.BACKWARD]


@needs_bfloat16
def test_parameters_and_their_gradients_are_float32() -> None:
    steps = {step.name: step.kernel for step in executor().plan.phases[TRAIN].steps}
    forward = steps["second"]
    data, weight = steps["second:backward:data"], steps["second:backward:weight+bias"]
    assert forward is not None
    assert data is not None
    assert weight is not None
    low, full = "bfloat16", "float32"
    assert [spec and spec.dtype for spec in forward.inputs] == [low, low, full]
    assert [spec and spec.dtype for spec in forward.outputs] == [low]
    assert [spec and spec.dtype for spec in data.inputs] == [low, None, low, None, None]
    assert [spec and spec.dtype for spec in data.outputs] == [low, None, None]
    assert [spec and spec.dtype for spec in weight.inputs] == [low, low, None, None, None]
    assert [spec and spec.dtype for spec in weight.outputs] == [None, full, full]
    # The data are float32, and so is their gradient.
    parts = [steps[f"first:backward:{part}"] for part in ("data", "weight")]
    specs = [spec for part in parts if part is not None for spec in part.outputs]
    assert [spec and spec.dtype for spec in specs] == [full, None, None, full]


def inference(fixed: bool, precision: str) -> Executor:
    """Return layers with a parameter, a function of parameters, and an input as weight."""
    with fresh_names():
        first = apply("FullyConnected", {"data": variable("data")}, {"num_hidden": MIDDLE}, "first")
        decided = apply("negative", {"data": variable("weight")}, {}, "minus")
        weights = {"second": decided, "third": variable("given")}
        outputs = [
            apply("FullyConnected", {"data": first, "weight": weight}, {"num_hidden": HIDDEN}, name)
            for name, weight in weights.items()
        ]
    inputs = {"data": TensorSpec((ROWS, FEATURES)), "given": TensorSpec((HIDDEN, MIDDLE))}
    request = CompileRequest(
        inputs, phases=(EVALUATE,), device=cpu(2), precision=precision, constant_parameters=fixed
    )
    executor, random = executor_for(compile_plan(group(outputs), request)), np.random.default_rng(6)
    symbol_inputs = ("data", "first_bias", "first_weight", "given", "second_bias", "third_bias")
    for name in (*symbol_inputs, "weight"):
        tensor = executor.tensor(name)
        tensor.write(random.standard_normal(tensor.spec.shape))
    executor.prepare()
    executor.run(EVALUATE)
    return executor


def packed(executor: Executor) -> dict[str, bool]:
    """Return by layer whether it reads its weight in a packed layout."""
    kernels = {step.name: step.kernel for step in executor.plan.phases[EVALUATE].steps}
    found = {}
    for name in ("first", "second", "third"):
        kernel = kernels[name]
        assert kernel is not None
        weight = kernel.inputs[1]
        assert weight is not None
        found[name] = weight.layout != PLAIN
    return found


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=needs_bfloat16)])
def test_a_weight_that_nothing_changes_is_packed_beforehand(precision: str) -> None:
    fixed, changing = (inference(fixed, precision) for fixed in (True, False))
    assert packed(fixed) == {"first": True, "second": True, "third": False}
    assert packed(changing) == {"first": False, "second": False, "third": False}
    prepared = {step.name.split(":")[0] for step in fixed.plan.phases[PREPARE].steps}
    assert {"first_weight", "minus"} <= prepared
    for name in fixed.plan.phases[EVALUATE].graph.results:
        ours, theirs = (executor.result(EVALUATE, name).values() for executor in (fixed, changing))
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("rows", [1, 6])
@needs_bfloat16
def test_a_bias_in_bfloat16_is_read_as_float32(rows: int, fixed: bool) -> None:
    prop = create("FullyConnected", {"num_hidden": HIDDEN})
    shapes = ((rows, FEATURES), (HIDDEN, FEATURES), (HIDDEN,))
    request = ForwardRequest(
        inputs=tuple(TensorSpec(shape, "bfloat16") for shape in shapes),
        outputs=(TensorSpec((rows, HIDDEN), "bfloat16"),),
        requests=(OpReqType.WRITE,),
        is_train=False,
        device=cpu(1),
        fixed=frozenset({1, 2} if fixed else ()),
    )
    for name, implementation in implementations("FullyConnected").items():
        kernel = implementation.prepare_forward(prop, request)
        if kernel is not None:
            assert kernel.inputs[2] is not None
            assert kernel.inputs[2].dtype == "float32", name


def test_a_row_or_two_need_no_packed_weight() -> None:
    names = list(implementations("FullyConnected"))
    assert names.index("few_rows") < names.index("jit") < names.index("onednn")
