"""Shape inference of complete networks, in both directions, with its diagnostics."""

from __future__ import annotations

import pytest
from networks import INPUTS, convolutional, plan_of, softmax

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.graph.infer import infer
from mxrun.graph.node import NodeEntry
from mxrun.graph.symbol import Symbol, apply, variable


def shapes_of(symbol: Symbol, **given: tuple[int | None, ...]) -> dict[str, object]:
    inference = infer(symbol.heads, given)
    assert not inference.diagnostics
    return {
        node.name: inference.shapes[NodeEntry(node)] for node in symbol.nodes if node.is_variable
    }


def test_P1_only_data_is_given() -> None:
    shapes = shapes_of(convolutional(), data=(64, 3, 9, 9))
    assert shapes == {
        "data": (64, 3, 9, 9),
        "conv1_weight": (5, 3, 3, 3),
        "conv1_bias": (5,),
        "conv2_weight": (7, 5, 3, 3),
        "conv2_bias": (7,),
        "fc_weight": (4, 28),
        "fc_bias": (4,),
        "label": (64,),
    }


def test_P2_knowledge_flows_backwards() -> None:
    symbol = apply("FullyConnected", {"data": variable("data")}, {"num_hidden": 4}, "fc")
    shapes = shapes_of(symbol, data=(8, None), fc_weight=(4, 20))
    assert shapes["data"] == (8, 20)


def test_P2_not_enough_is_no_error_but_listed() -> None:
    inference = infer(convolutional().heads, {"label": (6,)})
    assert not inference.diagnostics
    assert not inference.complete
    assert "data" in inference.unknown
    with pytest.raises(UserError, match="need shape of: data"):
        plan_of(convolutional(), inputs={"label": TensorSpec((6,), "int32")})


def test_P3_a_contradiction_names_the_chain() -> None:
    symbol = convolutional()
    inference = infer(symbol.heads, {"data": (6, 3, 9, 9), "conv2_weight": (7, 6, 3, 3)})
    (diagnostic,) = inference.diagnostics
    assert "conv2" in diagnostic.problem
    assert "weight" in diagnostic.problem
    assert any("data is [6, 3, 9, 9]" in line for line in diagnostic.chain)
    assert any("pool1_output is [6, 5, 4, 4]" in line for line in diagnostic.chain)


def test_P3_every_contradiction_is_reported_once() -> None:
    symbol = convolutional()
    wrong = {"data": (6, 3, 9, 9), "conv1_bias": (9,), "conv2_bias": (9,), "fc_bias": (9,)}
    inference = infer(symbol.heads, wrong)
    assert {d.problem.split("'")[1] for d in inference.diagnostics} == {"conv1", "conv2", "fc"}


def test_types_follow_labels() -> None:
    symbol = softmax(variable("data"))
    inference = infer(symbol.heads, {"data": (4, 3)})
    types = {node.name: inference.types[NodeEntry(node)] for node in symbol.nodes}
    assert types == {"data": "float32", "label": "int32", "softmax": "float32"}


def test_P4_planned_sizes_are_those_the_operators_see() -> None:
    plan = plan_of(convolutional())
    inference = infer(convolutional().heads, {name: spec.shape for name, spec in INPUTS.items()})
    by_name = {entry.name: shape for entry, shape in inference.shapes.items()}
    phase = plan.phases["train"]
    for value in phase.graph.values:
        if value.name in by_name:
            assert value.spec.shape == by_name[value.name]
