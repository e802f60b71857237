"""Layers with `fused: false` run the networks that they are composites of."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu, executor_for

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.base.layer_options import LayerOptions
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.graph.graph import GraphLoop
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol
from mxrun.operator.register import create
from mxrun.operator.shape import require_complete
from mxrun.planner.plan import Plan

library.load()

Array = npt.NDArray[Any]
# Steps, batch, and the size of state and data.
SIZES = ((35, 20, 200), (5, 64, 512), (100, 1, 16))
STACKS: tuple[dict[str, object], ...] = (
    {"num_layers": 1},
    {"num_layers": 2, "layout": "NTC"},
    {"num_layers": 1, "bidirectional": True, "state_outputs": True},
    {"num_layers": 2, "bidirectional": True},
)
MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
FORMS: tuple[dict[str, object], ...] = (
    {"initial_state": "zeros"},
    {"num_layers": 2, "state_outputs": True},
    {"bidirectional": True, "layout": "NTC", "state_outputs": True},
)


def layer(parameters: dict[str, object], fused: bool) -> Symbol:
    """A recurrent layer of 3 features, with weights for its outputs."""
    prop = create("RNN", parameters)
    names = (*prop.list_arguments(), *prop.list_auxiliary_states())
    inputs = tuple(NodeEntry(Node(name)) for name in names)
    node = Node("rnn", prop, inputs, options=LayerOptions(fused=fused))
    heads = []
    for index in range(prop.num_visible_outputs):
        pair = (NodeEntry(node, index), NodeEntry(Node(f"scale{index}")))
        product = Node(f"scaled{index}", create("elemwise_mul", {}), pair)
        total = Node(f"total{index}", create("sum", {}), (NodeEntry(product),))
        loss = Node(f"loss{index}", create("MakeLoss", {}), (NodeEntry(total),))
        heads.append(NodeEntry(loss))
    return Symbol([*heads, *(NodeEntry(node, index) for index in range(len(heads)))])


def planned(
    symbol: Symbol, given: Mapping[str, Shape], gradients: tuple[str, ...], phase: str = TRAIN
) -> Plan:
    inputs = {name: TensorSpec(shape) for name, shape in given.items()}
    vector = {"parameters": inputs.pop("parameters").shape}
    request = CompileRequest(
        inputs, shapes=vector, gradients=gradients, phases=(phase,), device=cpu()
    )
    return compile_plan(symbol, request)


def planned_for(symbol: Symbol, arrays: dict[str, Array], gradients: tuple[str, ...]) -> Plan:
    return planned(symbol, {name: array.shape for name, array in arrays.items()}, gradients)


def results(plan: Plan, arrays: dict[str, Array]) -> dict[str, Array]:
    executor = executor_for(plan)
    for name, array in arrays.items():
        executor.tensor(name).write(array)
    executor.run(TRAIN)
    names = plan.phases[TRAIN].graph.results
    return {name: executor.result(TRAIN, name).read() for name in names}


def shapes(
    parameters: dict[str, object], steps: int, batch: int, features: int
) -> dict[str, Shape]:
    """Shapes of the arguments, and of the weights of the outputs."""
    prop = create("RNN", parameters)
    is_batch_first = parameters.get("layout") == "NTC"
    data = (batch, steps, features) if is_batch_first else (steps, batch, features)
    names, count = prop.list_arguments(), len(prop.list_outputs())
    inferred = prop.infer_shape([data, *[None] * (len(names) - 1)], [None] * count)
    found = dict(zip(names, inferred.inputs, strict=True))
    found |= {f"scale{index}": shape for index, shape in enumerate(inferred.outputs)}
    return {name: require_complete(shape) for name, shape in found.items()}


def values(parameters: dict[str, object], steps: int = 4, batch: int = 5) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {
        name: random.standard_normal(shape).astype(np.float32)
        * (0.2 if name == "parameters" else 0.5)
        for name, shape in shapes(parameters, steps, batch, 3).items()
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_L10_a_recurrent_layer_and_its_network_give_the_same(
    mode: str, form: dict[str, object]
) -> None:
    """Values, gradients and states; the operator has fewer launches."""
    parameters = {"mode": mode, "state_size": 20, "num_layers": 1, **form}
    arrays = values(parameters)
    gradients = tuple(name for name in arrays if not name.startswith("scale"))
    found, plans = [], []
    for fused in (True, False):
        plans.append(planned_for(layer(parameters, fused), arrays, gradients))
        found.append(results(plans[-1], arrays))
    assert found[0].keys() == found[1].keys()
    for name, array in found[0].items():
        np.testing.assert_allclose(found[1][name], array, 1e-5, 2e-6, err_msg=name)
    whole, parts = (plan.phases[TRAIN].graph.steps for plan in plans)
    assert len(whole) < len(parts)


def test_L10_a_projected_lstm_and_its_network_give_the_same() -> None:
    parameters = {"mode": "lstm", "state_size": 6, "num_layers": 2, "projection_size": 4}
    arrays = values(parameters)
    gradients = tuple(name for name in arrays if not name.startswith("scale"))
    found = [
        results(planned_for(layer(parameters, fused), arrays, gradients), arrays)
        for fused in (True, False)
    ]
    for name, array in found[0].items():
        np.testing.assert_allclose(found[1][name], array, 1e-5, 2e-6, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("phase", [TRAIN, EVALUATE])
@pytest.mark.parametrize("mode", MODES[1:])
def test_L10_a_recurrent_layer_needs_no_more_memory_than_its_network(mode: str, phase: str) -> None:
    """Panels of a small weight are padded to entire registers: up to 2 KiB more are permitted."""
    for (steps, batch, size), form in itertools.product(SIZES, STACKS):
        parameters: dict[str, object] = {"mode": mode, "state_size": size} | form
        parameters |= {"initial_state": "zeros"}
        if mode == "lstm" and steps == 5:
            parameters |= {"projection_size": size // 2}
        specs = shapes(parameters, steps, batch, size)
        gradients = ("data", "parameters") if phase == TRAIN else ()
        whole, parts = (
            planned(layer(parameters, fused), specs, gradients, phase) for fused in (True, False)
        )
        sizes = whole.planned_bytes, parts.planned_bytes
        assert sizes[0] <= sizes[1] + (2048 if size < 32 else 0), (parameters, steps, batch)


def test_the_networks_steps_do_not_grow_with_time() -> None:
    parameters: dict[str, object] = {"mode": "lstm", "state_size": 4, "num_layers": 1}
    counts = []
    for steps in (3, 30):
        plan = planned_for(layer(parameters, False), values(parameters, steps), ("parameters",))
        graph = plan.phases[TRAIN].graph
        loops = [step.loop for step in graph.steps if isinstance(step.loop, GraphLoop)]
        assert loops
        counts.append(len(graph.steps))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "more",
    [
        {"use_sequence_length": True},
        {"initial_state": "carry"},
        {"lstm_state_clip_min": -1.0, "lstm_state_clip_max": 1.0},
    ],
    ids=str,
)
def test_what_only_the_operator_has_is_refused(more: dict[str, object]) -> None:
    parameters = {"mode": "lstm", "state_size": 4, "num_layers": 1, **more}
    arrays = values(parameters)
    with pytest.raises(UserError, match="runs as one operator only"):
        planned_for(layer(parameters, False), arrays, ())
