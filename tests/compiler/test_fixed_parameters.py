"""Inference with constant parameters: weight pre-packing and folding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import residual
from executors import cpu, executor_for

from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.device.cpu.onednn import library as onednn
from mxrun.executor.executor import Executor
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import EVALUATE, PREPARE
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable

Array = npt.NDArray[Any]
DATA = TensorSpec((4, 3, 32, 32))


def inferred(symbol: Symbol, **options: Any) -> tuple[Executor, list[Array]]:
    """Return the outputs for synthetic parameters, twice."""
    request = CompileRequest({"data": DATA}, phases=(EVALUATE,), device=cpu(2), **options)
    executor = executor_for(compile_plan(symbol, request))
    for block in executor.plan.pinned:
        if block.memory_class is not MemoryClass.CONSTANTS:
            random = np.random.default_rng(list(block.name.encode()))
            array = executor.tensor(block.name).mirror().array
            positive = block.name.endswith(("gamma", "moving_var"))
            array[...] = random.uniform(0.5, 2, array.shape) if positive else 0
            if not positive and array.dtype == np.float32:
                array[...] = random.standard_normal(array.shape) * 0.2
    executor.prepare()
    outputs = []
    for _ in range(2):
        executor.run(EVALUATE)
        outputs.append(executor.result(EVALUATE, symbol.list_outputs()[0]).read())
    return executor, outputs


def operators(executor: Executor, phase: str = EVALUATE) -> list[str]:
    steps = executor.plan.phases[phase].graph.steps
    return [step.prop.type_string for step in steps if step.prop is not None]


def chain(*layers: tuple[str, dict[str, object]]) -> Symbol:
    with fresh_names():
        symbol = variable("data")
        for number, (operator, parameters) in enumerate(layers):
            symbol = apply(operator, {"data": symbol}, parameters, f"layer{number}")
        return symbol


CONVOLUTION: tuple[str, dict[str, object]] = (
    "Convolution",
    {"kernel": (3, 3), "num_filter": 8, "pad": (1, 1)},
)
NORMALIZATION: tuple[str, dict[str, object]] = ("BatchNorm", {"fix_gamma": False})


def test_resnet20_folds_and_fuses_to_the_same_numbers() -> None:
    symbol = residual.resnet20()
    plain, expected = inferred(symbol, fuse=False)
    fixed, once = inferred(symbol, fuse=False, constant_parameters=True)
    folded, got = inferred(symbol, constant_parameters=True)
    np.testing.assert_array_equal(once[0], expected[0])
    assert np.abs(got[0] - expected[0]).max() <= 1e-5 * np.abs(expected[0]).max()
    for outputs in (expected, once, got):
        np.testing.assert_array_equal(*outputs)
    assert not {"BatchNorm", "Activation", "elemwise_add"} & set(operators(folded))
    assert operators(folded, PREPARE).count("_batch_norm_fold") == 21
    assert PREPARE not in plain.plan.phases
    if onednn.load() is not None:
        # A step reorders only the data.
        assert operators(plain).count("_reorder") > operators(fixed).count("_reorder") == 1


@pytest.mark.parametrize("implementation", ["auto", "numpy"])
@pytest.mark.parametrize(
    ("layers", "left"),
    [
        ((CONVOLUTION, NORMALIZATION), ["Convolution"]),
        ((CONVOLUTION, ("clip", {"a_min": -0.5, "a_max": 0.5})), ["_convolution_fused"]),
        (
            (("FullyConnected", {"num_hidden": 5}), NORMALIZATION, ("tanh", {})),
            ["FullyConnected", "tanh"],
        ),
        (
            (CONVOLUTION, ("BatchNorm", {"axis": 2}), ("Activation", {"act_type": "tanh"})),
            ["Convolution", "BatchNorm", "Activation"],
        ),
        (
            (("FullyConnected", {"num_hidden": 5, "flatten": False}), ("BatchNorm", {"axis": 1})),
            ["FullyConnected", "BatchNorm"],
        ),
    ],
)
def test_what_is_folded_keeps_its_meaning(
    layers: tuple[tuple[str, dict[str, object]], ...], left: list[str], implementation: str
) -> None:
    symbol = chain(*layers)
    options = {"implementation": implementation}
    _, expected = inferred(symbol, fuse=False, **options)
    executor, got = inferred(symbol, constant_parameters=True, **options)
    assert np.abs(got[0] - expected[0]).max() <= 1e-5 * np.abs(expected[0]).max()
    assert [name for name in operators(executor) if name != "_reorder"] == left


def test_what_is_made_once_is_planned_beside_the_parameters() -> None:
    executor, _ = inferred(chain(CONVOLUTION, NORMALIZATION), constant_parameters=True)
    plan = executor.plan
    kept = [block for block in plan.pinned if block.memory_class is MemoryClass.CONSTANTS]
    assert kept
    assert plan.classes()["constants"].total_bytes == sum(block.nbytes for block in kept)
    written = {
        plan.phases[PREPARE].offsets[value]
        for step in plan.phases[PREPARE].graph.steps
        for value in step.writes
    }
    assert written >= {block.offset for block in kept}


def test_what_is_made_of_one_parameter_in_many_ways_is_planned_at_once() -> None:
    with fresh_names():
        # A value that is read twice in every step: 2^60 ways lead back to the parameter.
        weight = variable("weight")
        for number in range(60):
            both = apply("elemwise_add", {"lhs": weight, "rhs": weight}, {}, f"both{number}")
            weight = apply("_mul_scalar", {"data": both}, {"scalar": 0.5}, f"half{number}")
        symbol = apply("elemwise_mul", {"lhs": variable("data"), "rhs": weight}, {}, "scaled")
    _, expected = inferred(symbol)
    executor, got = inferred(symbol, constant_parameters=True)
    assert operators(executor) == ["elemwise_mul"]
    assert (got[0] == expected[0]).all()


def test_F1_planned_bytes_are_touched() -> None:
    symbol = residual.resnet20()
    executor, _ = inferred(symbol, constant_parameters=True)

    def exercise() -> None:
        executor.device.fill(executor.memory, 0, executor.plan.pinned_bytes, 0)
        executor.prepare()
        executor.run(EVALUATE)

    assert executor.touched_bytes(exercise) == executor.plan.planned_bytes


@pytest.mark.parametrize("last", [None, ("Activation", {"act_type": "relu"})])
@pytest.mark.parametrize("groups", [1, 3])
def test_what_a_convolution_reads_and_adds_is_not_overwritten(
    groups: int, last: tuple[str, dict[str, object]] | None
) -> None:
    """x + convolution(x): the sum must not overwrite x, whose neighbours the kernel still reads."""
    with fresh_names():
        data = apply("tanh", {"data": variable("data")}, {}, "bent")
        parameters = {"kernel": (3, 3), "num_filter": 3, "pad": (1, 1), "num_group": groups}
        product = apply("Convolution", {"data": data}, parameters, "conv")
        symbol = apply("elemwise_add", {"lhs": data, "rhs": product}, {}, "sum")
        if last is not None:
            symbol = apply(last[0], {"data": symbol}, last[1], "last")
    _, expected = inferred(symbol, fuse=False, in_place=False)
    executor, got = inferred(symbol, constant_parameters=True)
    assert "_convolution_fused" in operators(executor)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5, atol=1e-6)


def test_a_weight_that_follows_from_data_is_not_folded() -> None:
    with fresh_names():
        weight = apply("transpose", {"data": variable("data")}, {"axes": (1, 0, 2, 3)}, "weight")
        parameters = {"kernel": (32, 32), "num_filter": 3, "no_bias": True}
        symbol = apply("Convolution", {"data": weight, "weight": weight}, parameters, "conv")
        symbol = apply("BatchNorm", {"data": symbol}, {}, "norm")
    executor, _ = inferred(symbol, constant_parameters=True)
    assert "_batch_norm_fold" not in operators(executor)
    assert "BatchNorm" in operators(executor)


def test_limits_the_wrong_way_round_stay_a_clip() -> None:
    """clip gives the upper bound where both apply; a convolution's limits would be refused."""
    symbol = chain(CONVOLUTION, ("clip", {"a_min": 1.0, "a_max": -1.0}))
    _, expected = inferred(symbol, fuse=False)
    executor, got = inferred(symbol, constant_parameters=True)
    assert "clip" in operators(executor)
    np.testing.assert_array_equal(got[0], expected[0])


def test_a_step_before_what_it_needs_is_an_error() -> None:
    request = CompileRequest({"data": DATA}, phases=(EVALUATE,), constant_parameters=True)
    executor = executor_for(compile_plan(chain(CONVOLUTION, NORMALIZATION), request))
    with pytest.raises(InternalError, match=r"prepare\(\) must run"):
        executor.run(EVALUATE)
    with pytest.raises(InternalError, match="changes its parameters"):
        compile_plan(chain(CONVOLUTION), CompileRequest({"data": DATA}, constant_parameters=True))
