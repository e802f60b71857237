"""Fusion of sums with the normalisation that follows, where a later sum reads them too."""

from __future__ import annotations

import numpy as np
import pytest
from bundled_runs import executor_of
from executors import cpu

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.config.bundled import find_config
from mxrun.executor.executor import Executor
from mxrun.graph.graph import StepKind
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.preparation.planning import load

LAYERS = 2


def run(executor: Executor, classes: int, steps: int = 3) -> Executor:
    """Train on a batch of random tokens, then evaluate it."""
    random = np.random.default_rng(5)
    for name in ("data", "label"):
        tensor = executor.tensor(name)
        tensor.write(random.integers(0, classes, tensor.spec.shape).astype("int32"))
    weight = executor.tensor(SAMPLE_WEIGHT)
    weight.write(np.ones(weight.spec.shape, "float32"))
    executor.prepare()
    for _ in range(steps):
        executor.run(TRAIN)
    executor.run(EVALUATE)
    return executor


@pytest.mark.parametrize(("precision", "fused_sums"), [("float32", 2 * LAYERS), ("bfloat16", 0)])
def test_a_transformer_keeps_every_bit(precision: str, fused_sums: int) -> None:
    """After three steps with and without fusion, all variables and the losses are the same.

    In bfloat16 the sums are float32 and their second terms are not.
    """
    built = load(find_config("gpt_tiny"), ["threads=2"], 4)
    plain, fused = (
        run(executor_of(built, fuse=fuse, precision=precision), 62) for fuse in (False, True)
    )
    steps = fused.plan.phases[TRAIN].graph.steps
    kinds = [s.prop.type_string for s in steps if s.prop and s.kind is StepKind.FORWARD]
    assert kinds.count("_add_layer_norm") == fused_sums
    for block in plain.plan.pinned:
        ours, theirs = fused.tensor(block.name).values(), plain.tensor(block.name).values()
        assert ours.tobytes() == theirs.tobytes(), block.name
    for name in plain.plan.phases[EVALUATE].graph.results:
        ours, theirs = (executor.result(EVALUATE, name).values() for executor in (fused, plain))
        assert ours.tobytes() == theirs.tobytes(), name


def operators(readers: int, axis: int = -1, kind: str = "LayerNorm") -> list[str]:
    """Return the operators of a plan with a sum that a norm and further operators read."""
    with fresh_names():
        given = {name: variable(name) for name in ("lhs", "rhs")}
        total = apply("elemwise_add", given, {}, "total")
        heads = [apply(kind, {"data": total}, {"axis": axis}, "norm").heads[0]]
        for index in range(readers):
            heads += apply("_plus_scalar", {"data": total}, {"scalar": 1.0 + index}).heads
    spec = TensorSpec((3, 4))
    request = CompileRequest({"lhs": spec, "rhs": spec}, phases=(EVALUATE,), device=cpu(1))
    plan = compile_plan(Symbol(heads), request)
    return [step.prop.type_string for step in plan.phases[EVALUATE].graph.steps if step.prop]


def test_a_sum_with_one_further_reader_is_fused() -> None:
    assert operators(0) == ["_add_layer_norm"]
    assert operators(1) == ["_add_layer_norm", "_plus_scalar"]
    assert operators(1, kind="RMSNorm") == ["_add_rms_norm", "_plus_scalar"]


def test_other_sums_stay_as_they_are() -> None:
    """The gradients of several readers would be summed in another order."""
    assert "_add_layer_norm" not in operators(2)
    assert "_add_layer_norm" not in operators(1, axis=0)


def test_a_config_says_that_sums_are_not_fused() -> None:
    built = load(find_config("gpt_tiny"), ["threads=2"], 4)
    request = CompileRequest(
        built.model.inputs, phases=(EVALUATE,), device=cpu(2), unfused=("sum and layer norm",)
    )
    steps = compile_plan(built.model.symbol, request).phases[EVALUATE].graph.steps
    kinds = [step.prop.type_string for step in steps if step.prop]
    assert "_add_layer_norm" not in kinds
    assert kinds.count("LayerNorm") == 2 * LAYERS + 1
