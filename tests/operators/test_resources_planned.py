"""Temporary space of operators: shared by those that do not run at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pytest
from executors import executor_for
from networks import rule

from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, variable
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    OperatorProperty,
    PartialInference,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
    same_shape,
)
from mxrun.planner.plan import Plan

T = TypeVar("T")
MEBIBYTE = 1 << 20
# Bytes of the data and the two outputs.
TENSORS = 3 * 4 * 8 * 4


class ScratchParameters(Parameters):
    """Bytes of temporary space: of forward as they are, of backward for each element."""

    forward_bytes: int = 0
    backward_bytes_each: int = 0


class Scratch(Operator):
    """Operator that doubles its input through temporary space, and leaves garbage there."""

    def forward(self, call: ForwardCall) -> None:
        data = call.inputs.data
        for resource in range(len(call.resources)):
            space = call.space(resource)
            space.view("float32")[: data.size] = data.ravel()
            data = space.view("float32")[: data.size].reshape(data.shape).copy()
            space[:] = 0xAA
        call.store(output=2 * data)

    def backward(self, call: BackwardCall) -> None:
        for resource in range(len(call.resources)):
            call.space(resource)[:] = 0x55
        call.store(data=2 * call.output_gradients.output)


class ScratchProperty(OperatorProperty[ScratchParameters]):
    """output = 2 * data, with the space that the parameters ask for."""

    type_string = "scratch"
    parameter_type = ScratchParameters

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        return [out_grad[0]]

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        return _request(self.parameters.forward_bytes)

    def backward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        return _request(self.parameters.backward_bytes_each * inputs[0].elements)

    def create_operator(self) -> Operator:
        return Scratch()


def _request(nbytes: int) -> list[ResourceRequest]:
    return [ResourceRequest(ResourceKind.TEMP_SPACE, nbytes)] if nbytes else []


def scratch(symbol: Symbol, name: str, **parameters: int) -> Symbol:
    prop = ScratchProperty(ScratchParameters(**parameters))
    return Symbol([NodeEntry(Node(name, prop, symbol.heads))])


def inference_plan(*forward_bytes: int) -> Plan:
    symbol = variable("data")
    for position, nbytes in enumerate(forward_bytes):
        symbol = scratch(symbol, f"scratch{position}", forward_bytes=nbytes)
    inputs = {"data": TensorSpec((4, 8))}
    return compile_plan(symbol, CompileRequest(inputs=inputs, phases=(EVALUATE,)))


@pytest.mark.parametrize("sizes", [(10, 6), (6, 10)])
def test_R2_spaces_of_ten_and_six_mebibytes_cost_ten(sizes: tuple[int, int]) -> None:
    plan = inference_plan(*(size * MEBIBYTE for size in sizes))
    assert plan.classes()["workspace"].peak_bytes == 10 * MEBIBYTE
    assert plan.classes()["workspace"].total_bytes == 16 * MEBIBYTE
    assert 10 * MEBIBYTE < plan.planned_bytes <= 10 * MEBIBYTE + TENSORS


def test_R2_the_contents_of_a_space_do_not_matter() -> None:
    executor = executor_for(inference_plan(1 * MEBIBYTE, 2 * MEBIBYTE))
    data = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    for run in (executor.run, executor.run_poisoned):
        executor.tensor("data").write(data)
        run(EVALUATE)
        np.testing.assert_array_equal(
            executor.result(EVALUATE, "scratch1_output").values(), 4 * data
        )


def training_plan(batch: int, *phases: str, backward_bytes_each: int = 100_000) -> Plan:
    dense = apply("FullyConnected", {"data": variable("data")}, {"num_hidden": 4}, "fc")
    symbol = scratch(dense, "scratch", backward_bytes_each=backward_bytes_each)
    symbol = apply("SoftmaxOutput", {"data": symbol, "label": variable("label")}, {}, "softmax")
    rules = {name: rule() for name in ("fc_weight", "fc_bias")} if TRAIN in phases else {}
    inputs = {"data": TensorSpec((batch, 8)), "label": TensorSpec((batch,), "int32")}
    return compile_plan(symbol, CompileRequest(inputs=inputs, rules=rules, phases=phases))


def space_of(plan: Plan, phase: str) -> dict[str, int]:
    steps = plan.phases[phase].steps
    return {
        step.name: step.kernel.workspace_bytes
        for step in steps
        if step.name.startswith("scratch") and step.kernel is not None
    }


def test_R4_backwards_own_space_is_in_training_alone_and_doubles_with_the_batch() -> None:
    small, large = training_plan(8, TRAIN, EVALUATE), training_plan(16, TRAIN, EVALUATE)
    assert space_of(small, TRAIN) == {"scratch": 0, "scratch:backward": 3_200_000}
    assert space_of(large, TRAIN) == {"scratch": 0, "scratch:backward": 6_400_000}
    assert space_of(small, EVALUATE) == {"scratch": 0}
    inference = training_plan(8, EVALUATE)
    assert inference.classes()["workspace"].peak_bytes < 10_000
    assert inference.planned_bytes < 10_000
    assert small.planned_bytes > 3_200_000
    without = training_plan(8, TRAIN, EVALUATE, backward_bytes_each=0)
    assert small.planned_bytes - without.planned_bytes <= 3_200_000
    assert 2 * small.planned_bytes * 0.95 < large.planned_bytes < 2 * small.planned_bytes
