"""Floors of steps whose operations and bytes are known by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from networks import chain, parameters, rule, softmax

from mxrun.base.machine import Bandwidth, Machine
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.graph.cost import Bound, Cost, Traffic, cost_of, traffic_of
from mxrun.graph.graph import Step, StepKind
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.operator.kernel import OpReqType
from mxrun.planner.plan import PhasePlan

# Seconds encode bytes: the digits tell updated, copied and read bytes apart.
MACHINE = Machine(
    threads=1,
    flops_per_s={"float32": 10.0, "bfloat16": 100.0},
    bandwidths=(Bandwidth(1, update=4.0, copy=2.0, read=1.0),),
    loop_s=1e-9,
    primitive_s=1e-9,
    tasks_s=0.0,
)
BATCH, IMPLEMENTATIONS = 4, ("auto", "numpy")


def network() -> Symbol:
    """Return a network with 16 channels of 8 x 8, so that no packed weight needs padding."""
    with fresh_names():
        return softmax(
            chain(
                variable("data"),
                ("Convolution", {"num_filter": 16, "kernel": (3, 3), "pad": (1, 1)}, "conv1"),
                ("Activation", {"act_type": "relu"}, "relu1"),
                ("Convolution", {"num_filter": 32, "kernel": (3, 3), "stride": (2, 2)}, "conv2"),
                ("Flatten", {}, "flatten"),
                ("FullyConnected", {"num_hidden": 10}, "fc"),
            )
        )


def phase_of(symbol: Symbol, phase: str, **options: Any) -> PhasePlan:
    settings: dict[str, Any] = {
        "inputs": {
            "data": TensorSpec((BATCH, 16, 8, 8)),
            "label": TensorSpec((BATCH,), "int32"),
        },
        "rules": {name: rule() for name in parameters(symbol)},
        "phases": (phase,),
        "fuse": False,
    }
    return compile_plan(symbol, CompileRequest(**settings | options)).phases[phase]


def step_of(phase: PhasePlan, name: str) -> Step:
    return next(step for step in phase.steps if step.name == name)


def figures(phase: PhasePlan, name: str) -> tuple[int, Traffic]:
    step = step_of(phase, name)
    assert step.kernel is not None
    return step.kernel.flops, traffic_of(step, phase.offsets)


# Two operations for each output and each of 16 channels x 3 x 3 taps; for fc each of 288 inputs.
CONV1 = 2 * (BATCH * 16 * 8 * 8) * (16 * 9)
CONV2 = 2 * (BATCH * 32 * 3 * 3) * (16 * 9)
FC = 2 * (BATCH * 10) * 288
DATA, CONV1_WEIGHT = 4 * BATCH * 16 * 64, 4 * 16 * 16 * 9
CONV2_OUTPUT, CONV2_WEIGHT = 4 * BATCH * 32 * 9, 4 * 32 * 16 * 9
FC_OUTPUT, FC_WEIGHT = 4 * BATCH * 10, 4 * 10 * 288


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_forward_products_are_counted(implementation: str) -> None:
    phase = phase_of(network(), EVALUATE, implementation=implementation)
    for name, flops, data, weight, bias, output in (
        ("conv1", CONV1, DATA, CONV1_WEIGHT, 4 * 16, DATA),
        ("conv2", CONV2, DATA, CONV2_WEIGHT, 4 * 32, CONV2_OUTPUT),
        ("fc", FC, CONV2_OUTPUT, FC_WEIGHT, 4 * 10, FC_OUTPUT),
    ):
        assert figures(phase, name) == (flops, Traffic(data + weight + bias, output, 0))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_backward_products_are_those_that_are_asked_for(implementation: str) -> None:
    phase = phase_of(network(), TRAIN, implementation=implementation)
    flops, traffic = figures(phase, "conv1:backward")
    # The data gradient is not requested; the NumPy body counts a bias like a product.
    products = {"auto": 1, "numpy": 2}[implementation]
    assert flops == products * CONV1
    weight_read = {"auto": 0, "numpy": CONV1_WEIGHT}[implementation]
    assert traffic.read == 2 * DATA + weight_read
    assert traffic.written == CONV1_WEIGHT + 4 * 16
    flops, traffic = figures(phase, "conv2:backward:weight+bias")
    assert flops == products * CONV2
    weight_read = {"auto": 0, "numpy": CONV2_WEIGHT}[implementation]
    assert traffic.read == CONV2_OUTPUT + DATA + weight_read
    assert traffic.written == CONV2_WEIGHT + 4 * 32
    flops, traffic = figures(phase, "conv2:backward:data")
    assert flops == CONV2
    data_read = {"auto": 0, "numpy": DATA}[implementation]
    assert traffic.read == CONV2_OUTPUT + CONV2_WEIGHT + data_read
    assert traffic.written == DATA
    assert figures(phase, "fc:backward:weight+bias")[0] == products * FC
    assert figures(phase, "fc:backward:data")[0] == FC


def test_a_frozen_weight_costs_no_product() -> None:
    symbol = network()
    rules = {name: rule() for name in parameters(symbol) if name != "conv2_weight"}
    phase = phase_of(symbol, TRAIN, rules=rules)
    flops, traffic = figures(phase, "conv2:backward:data")
    assert flops == CONV2
    assert traffic.written == DATA
    flops, traffic = figures(phase, "conv2:backward:bias")
    assert flops == 0
    assert traffic.written == 4 * 32


@pytest.mark.parametrize("in_place", [True, False])
def test_maps_read_and_write_every_element_once(in_place: bool) -> None:
    phase = phase_of(network(), TRAIN, in_place=in_place)
    shared = DATA if in_place else 0
    assert figures(phase, "relu1") == (BATCH * 16 * 64, Traffic(DATA, DATA, shared))
    # Backward reads the gradient and the output (or an equivalent mask), and writes the input's
    # gradient.
    flops, traffic = figures(phase, "relu1:backward")
    assert flops == BATCH * 16 * 64
    assert traffic == Traffic(2 * DATA, DATA, shared)


def test_updates_read_the_gradient_and_renew_the_rest() -> None:
    phase = phase_of(network(), TRAIN)
    _, traffic = figures(phase, "fc_weight:update")
    # Weight and momentum are written where they are read.
    assert traffic == Traffic(3 * FC_WEIGHT, 2 * FC_WEIGHT, 2 * FC_WEIGHT)


def test_reorders_move_every_byte() -> None:
    phase = phase_of(network(), EVALUATE)
    steps = [step for step in phase.steps if step.kind is StepKind.REORDER]
    moved = {step.name.split(":")[0]: figures(phase, step.name) for step in steps}
    assert moved["data"] == (0, Traffic(DATA, DATA, 0))
    assert moved["conv2_weight"] == (0, Traffic(CONV2_WEIGHT, CONV2_WEIGHT, 0))
    assert moved["conv2_output"] == (0, Traffic(CONV2_OUTPUT, CONV2_OUTPUT, 0))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_table_is_read_where_it_is_looked_up(implementation: str) -> None:
    with fresh_names():
        table = apply(
            "Embedding", {"data": variable("ids")}, {"input_dim": 1000, "output_dim": 8}, "table"
        )
        symbol = softmax(chain(table, ("FullyConnected", {"num_hidden": 10}, "fc")))
    inputs = {
        "ids": TensorSpec((BATCH, 5), "int32"),
        "label": TensorSpec((BATCH,), "int32"),
    }
    phase = phase_of(symbol, EVALUATE, inputs=inputs, rules={}, implementation=implementation)
    _, traffic = figures(phase, "table")
    rows = 4 * BATCH * 5 * 8
    looked_up = {"auto": rows, "numpy": 4 * 1000 * 8}[implementation]
    assert traffic == Traffic(4 * BATCH * 5 + looked_up, rows, 0)


def test_a_tensor_that_is_read_twice_counts_once() -> None:
    with fresh_names():
        data = variable("data")
        symbol = apply("elemwise_mul", {"lhs": data, "rhs": data}, {}, "square")
    inputs = {"data": TensorSpec((BATCH, 16, 8, 8))}
    phase = phase_of(symbol, EVALUATE, inputs=inputs, rules={})
    assert figures(phase, "square")[1] == Traffic(DATA, DATA, 0)


def test_adding_to_a_gradient_reads_it_too() -> None:
    phase = phase_of(network(), TRAIN)
    step = step_of(phase, "relu1:backward")
    before = traffic_of(step, {})
    added = traffic_of(replace(step, requests=(OpReqType.ADD,)), {})
    assert before == Traffic(2 * DATA, DATA, 0)
    assert added == Traffic(3 * DATA, DATA, DATA)


def test_the_floor_is_the_longer_of_operations_and_bytes() -> None:
    phase = phase_of(network(), EVALUATE)
    cost = cost_of(step_of(phase, "conv1"), Traffic(100, 50, 30), MACHINE, 7.0)
    assert cost.compute_s == CONV1 / 10
    assert cost.memory_s == 60 / 4 + 40 / 2 + 50 / 1
    assert cost.floor_s == cost.bound_s == cost.compute_s
    assert cost.bound is Bound.COMPUTE
    cost = cost_of(step_of(phase, "conv1"), Traffic(CONV1, 0, 0), MACHINE, 7.0)
    assert cost.floor_s == cost.bound_s == CONV1
    assert cost.bound is Bound.MEMORY


def test_calls_are_the_bound_where_they_alone_take_longer() -> None:
    cost = Cost(StepKind.FORWARD, compute_s=2.0, memory_s=3.0, overhead_s=5.0)
    assert (cost.floor_s, cost.bound_s, cost.bound) == (3.0, 5.0, Bound.OVERHEAD)
    cost = replace(cost, overhead_s=1.0)
    assert (cost.floor_s, cost.bound_s, cost.bound) == (3.0, 3.0, Bound.MEMORY)


def test_a_prediction_is_more_than_floor_and_calls() -> None:
    for kind in StepKind:
        for compute_s, memory_s in ((2.0, 1.0), (1.0, 2.0)):
            cost = Cost(kind, compute_s, memory_s, overhead_s=0.5)
            assert 2.5 < cost.predicted_s < 5.0
    assert Cost(StepKind.UPDATE, 0.0, 0.0, 0.5).predicted_s == 0.5


def test_low_precision_has_its_own_peak() -> None:
    step = step_of(phase_of(network(), EVALUATE), "conv1")
    assert step.kernel is not None
    low = tuple(TensorSpec(spec.shape, "bfloat16") for spec in step.kernel.inputs if spec)
    cast = replace(step, kernel=replace(step.kernel, inputs=low))
    assert cost_of(cast, Traffic(0, 0, 0), MACHINE, 0.0).compute_s == CONV1 / 100
