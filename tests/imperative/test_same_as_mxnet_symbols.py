"""Symbols and executors give MXNet's names, shapes, outputs and gradients."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import symbol_networks
from oracles.peer import MXNet
from peer_scripts import run_in

from mxrun import nd, sym

SUPPORT = Path(symbol_networks.__file__).parent
NETWORKS = symbol_networks.NETWORKS
# Requests by name; of `mixed` every third argument in turn is written, added to and left out.
REQUESTS = ("write", "add", "null", "mixed")

MXNET = f"""
import os, warnings
# Its fusions overwrite outputs and run a training pass without gradients as inference.
os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
# Its bias gradient is not written without the weight's.
os.environ["MXNET_MKLDNN_ENABLED"] = "0"
warnings.filterwarnings("ignore")
import mxnet as mx
sys.path.insert(0, {str(SUPPORT)!r})
import symbol_networks

def answer(request):
    kind, name, grad_req, rounds = request
    compose, shapes = symbol_networks.NETWORKS[name]
    with mx.name.NameManager():
        symbol = compose(mx.sym)
    if kind == "load":
        symbol = mx.sym.load_json(grad_req)
        grad_req = "write"
    executor = symbol.simple_bind(mx.cpu(), grad_req=grad_req, **shapes)
    return {{
        **symbol_networks.described(symbol, shapes),
        **symbol_networks.passes(executor, mx.nd.array, grad_req, rounds),
        "json": symbol.tojson(),
    }}
"""


def composed(name: str) -> Any:
    with sym.NameManager():
        return NETWORKS[name][0](sym)


def requests_of(name: str, kind: str) -> Any:
    if kind != "mixed":
        return kind
    arguments = composed(name).list_arguments()
    return {each: ("write", "add", "null")[i % 3] for i, each in enumerate(arguments)}


def ours(name: str, grad_req: Any, rounds: int) -> dict[str, Any]:
    symbol, shapes = composed(name), NETWORKS[name][1]
    executor = symbol.simple_bind(None, grad_req=grad_req, **shapes)
    return {
        **symbol_networks.described(symbol, shapes),
        **symbol_networks.passes(executor, nd.array, grad_req, rounds),
    }


@cache
def theirs() -> dict[tuple[str, str], Any]:
    """The answers of one process for all networks and requests, and for our JSON."""
    cases = [(name, kind) for name in NETWORKS for kind in REQUESTS]
    requests: list[Any] = [["run", name, requests_of(name, kind), 2] for name, kind in cases]
    requests += [["load", name, composed(name).tojson(), 2] for name in NETWORKS]
    answers = run_in(MXNet, MXNET, requests)
    keys = [*cases, *((name, "load") for name in NETWORKS)]
    return dict(zip(keys, answers, strict=True))


def assert_close(left: Any, right: Any) -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        # MXNet leaves the gradient of a label as it was.
        for key in left.keys() - {"label", "softmax_label"}:
            assert_close(left[key], right[key])
    else:
        for one, other in zip(left, right, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_X2_names_and_shapes_are_mxnets(name: str) -> None:
    expected, symbol = theirs()[name, "write"], composed(name)
    found = symbol_networks.described(symbol, NETWORKS[name][1])
    assert found == {key: expected[key] for key in found}


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_X4_outputs_and_gradients_are_mxnets(name: str, kind: str) -> None:
    expected, found = {**theirs()[name, kind]}, ours(name, requests_of(name, kind), 2)
    if name == "passed" and kind in ("add", "mixed"):
        # MXNet adds a gradient that is passed through several operators once too often.
        for each in (expected, found):
            each["gradients"] = {**each["gradients"], "x": []}
    for key in ("evaluated", "trained", "gradients"):
        assert_close(found[key], expected[key])
    # MXNet updates the states in backward, so not at all without gradients.
    if kind != "null":
        assert_close(found["states"], expected["states"])


@pytest.mark.parametrize("name", NETWORKS)
def test_X4_added_gradients_are_those_written_each_time(name: str) -> None:
    written, added = (ours(name, kind, 2)["gradients"] for kind in ("write", "add"))
    for argument, gradient in written.items():
        expected = 1 + 2 * np.array(gradient)
        np.testing.assert_allclose(added[argument], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_X3_mxnet_loads_the_json(name: str) -> None:
    expected, found = theirs()[name, "load"], ours(name, "write", 2)
    for key in ("arguments", "outputs", "state_names", "internals", "shapes"):
        assert found[key] == expected[key]
    for key in ("evaluated", "trained", "gradients", "states"):
        assert_close(found[key], expected[key])


@pytest.mark.parametrize("name", NETWORKS)
def test_X3_mxnets_json_is_the_same_graph(name: str) -> None:
    loaded = sym.load_json(theirs()[name, "write"]["json"])
    assert loaded.list_arguments() == composed(name).list_arguments()
    assert [node.operator for node in loaded.nodes] == [
        node.operator for node in composed(name).nodes
    ]
