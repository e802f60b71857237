"""Symbols: composition, names, groups, internals, JSON."""

from __future__ import annotations

import json

import pytest
from commands import python_output
from networks import NETWORKS, convolutional, shared

from mxrun.base.errors import UserError
from mxrun.graph.symbol import apply, fresh_names, group, load_json, variable


def test_X2_automatic_variables_and_stable_names() -> None:
    with fresh_names():
        symbol = apply(
            "Convolution", {"data": variable("data")}, {"num_filter": 2, "kernel": (1, 1)}
        )
        symbol = apply("Activation", {"data": symbol}, {"act_type": "relu"})
        symbol = apply("Activation", {"data": symbol}, {"act_type": "tanh"})
    assert symbol.list_arguments() == ["data", "convolution0_weight", "convolution0_bias"]
    assert symbol.list_outputs() == ["activation1_output"]


@pytest.mark.full
def test_X2_names_are_equal_in_another_process() -> None:
    script = (
        "import networks; s = networks.convolutional(); print(s.graph_hash(), s.list_arguments())"
    )
    # Strings have other hashes in this process.
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": "tests/support"}
    symbol = convolutional()
    expected = f"{symbol.graph_hash()} {symbol.list_arguments()}\n"
    assert python_output("-c", script, env=environment) == expected


def test_X2_groups_and_internals() -> None:
    symbol = convolutional()
    internals = symbol.get_internals()
    assert "conv1_output" in internals.list_outputs()
    assert "softmax_loss" not in internals.list_outputs()
    both = group([internals["conv1"], symbol])
    assert both.list_outputs() == ["conv1_output", "softmax_output"]
    with pytest.raises(UserError, match="did you mean 'conv1"):
        internals["conv11"]


def test_X8_operators_by_name_give_the_same_graph() -> None:
    again = convolutional()
    assert again.graph_hash() == convolutional().graph_hash()
    assert again.graph_hash() != shared().graph_hash()


@pytest.mark.parametrize("name", NETWORKS)
def test_X3_json_round_trip(name: str) -> None:
    symbol = NETWORKS[name]()
    loaded = load_json(symbol.tojson())
    assert loaded.graph_hash() == symbol.graph_hash()
    assert loaded.list_arguments() == symbol.list_arguments()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"nodes": 3, "heads": []}',
        '{"nodes": [{"op": "null", "name": "a", "inputs": []}], "heads": [[1, 0, 0]]}',
        '{"nodes": [{"op": "Nonsense", "name": "a", "inputs": []}], "heads": [[0, 0, 0]]}',
        '{"nodes": [{"op": "Convolution", "name": "a", "inputs": []}], "heads": [[0, 0, 0]]}',
        '{"nodes": [{"op": "null", "name": "a", "inputs": [[0, 0, 0]]}], "heads": [[0, 0, 0]]}',
        '{"nodes": [{"op": "null", "name": "a", "attrs": [1], "inputs": []}], "heads": [[0, 0]]}',
        "[" * 100_000,
    ],
)
def test_X7_bad_json_is_a_user_error(text: str) -> None:
    with pytest.raises(UserError):
        load_json(text)


def test_X7_two_nodes_of_one_name() -> None:
    from networks import plan_of, softmax

    data = variable("data")
    first = apply("FullyConnected", {"data": data}, {"num_hidden": 4}, "fc")
    second = apply("FullyConnected", {"data": first}, {"num_hidden": 4}, "fc")
    with pytest.raises(UserError, match="two nodes are named"):
        plan_of(softmax(second))


def test_json_names_mxnets_version_and_hidden_outputs() -> None:
    document = json.loads(convolutional().tojson())
    assert document["attrs"] == {"mxnet_version": ["int", 10901]}
    assert document["heads"] == [[len(document["nodes"]) - 1, 0, 0]]
