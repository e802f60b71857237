"""Layers with `fused: false` run the networks that they are composites of."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu, executor_for

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import CompileRequest, compile_plan
from mxrun.graph.graph import GraphLoop
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol
from mxrun.operator.register import create
from mxrun.planner.plan import Plan

library.load()

Array = npt.NDArray[Any]
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
    node = Node("rnn", prop, inputs, fused=fused)
    heads = []
    for index in range(prop.num_visible_outputs):
        pair = (NodeEntry(node, index), NodeEntry(Node(f"scale{index}")))
        product = Node(f"scaled{index}", create("elemwise_mul", {}), pair)
        total = Node(f"total{index}", create("sum", {}), (NodeEntry(product),))
        loss = Node(f"loss{index}", create("MakeLoss", {}), (NodeEntry(total),))
        heads.append(NodeEntry(loss))
    return Symbol([*heads, *(NodeEntry(node, index) for index in range(len(heads)))])


def planned(symbol: Symbol, arrays: dict[str, Array], gradients: tuple[str, ...]) -> Plan:
    inputs = {name: TensorSpec(array.shape) for name, array in arrays.items()}
    del inputs["parameters"]
    shapes = {"parameters": arrays["parameters"].shape}
    request = CompileRequest(
        inputs, shapes=shapes, gradients=gradients, phases=(TRAIN,), device=cpu()
    )
    return compile_plan(symbol, request)


def results(plan: Plan, arrays: dict[str, Array]) -> dict[str, Array]:
    executor = executor_for(plan)
    for name, array in arrays.items():
        executor.tensor(name).write(array)
    executor.run(TRAIN)
    names = plan.phases[TRAIN].graph.results
    return {name: executor.result(TRAIN, name).read() for name in names}


def values(parameters: dict[str, object], steps: int = 4, batch: int = 5) -> dict[str, Array]:
    random = np.random.default_rng(0)
    prop = create("RNN", parameters)
    shape = (batch, steps, 3) if parameters.get("layout") == "NTC" else (steps, batch, 3)
    names, count = prop.list_arguments(), len(prop.list_outputs())
    given = [shape, *[None] * (len(names) - 1)]
    inferred = prop.infer_shape(given, [None] * count)
    shapes = dict(zip(names, inferred.inputs, strict=True))
    shapes |= {f"scale{index}": shape for index, shape in enumerate(inferred.outputs)}
    return {
        name: random.standard_normal(shape or ()).astype(np.float32)
        * (0.2 if name == "parameters" else 0.5)
        for name, shape in shapes.items()
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
        plans.append(planned(layer(parameters, fused), arrays, gradients))
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
        results(planned(layer(parameters, fused), arrays, gradients), arrays)
        for fused in (True, False)
    ]
    for name, array in found[0].items():
        np.testing.assert_allclose(found[1][name], array, 1e-5, 2e-6, err_msg=name)


@pytest.mark.parametrize("layout", ["TNC", "NTC"])
def test_L10_the_lstm_of_a_language_model_needs_no_more_memory_than_its_network(
    layout: str,
) -> None:
    parameters: dict[str, object] = {"mode": "lstm", "state_size": 200, "num_layers": 2}
    parameters |= {"layout": layout, "initial_state": "zeros"}
    arrays = values(parameters, 35, 20)
    whole, parts = (
        planned(layer(parameters, fused), arrays, ("data", "parameters")) for fused in (True, False)
    )
    assert whole.planned_bytes <= parts.planned_bytes


def test_the_networks_steps_do_not_grow_with_time() -> None:
    parameters: dict[str, object] = {"mode": "lstm", "state_size": 4, "num_layers": 1}
    counts = []
    for steps in (3, 30):
        plan = planned(layer(parameters, False), values(parameters, steps), ("parameters",))
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
        planned(layer(parameters, False), arrays, ())
