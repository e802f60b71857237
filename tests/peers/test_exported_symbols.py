"""Networks exported for peers: without sample weights, and without Dropout's random numbers."""

from __future__ import annotations

import json

from oracles.peer import MXNet

from mxrun.config.bundled import find_config
from mxrun.graph.symbol import Symbol, load_json
from mxrun.peers.exported import peer_symbol, without_dropout
from mxrun.preparation.planning import load


def _text(config: str) -> str:
    return load(find_config(config)).model.symbol.tojson()


def test_sample_weights_are_left_out(mxnet: MXNet) -> None:
    ours = load_json(_text("lenet_mnist"))
    saved = mxnet.save_json(peer_symbol(ours.tojson()))
    assert "sample_weight" in ours.list_arguments()
    assert saved.arguments == tuple(n for n in ours.list_arguments() if n != "sample_weight")
    assert saved.outputs == tuple(ours.list_outputs())


def test_every_node_reads_what_it_read() -> None:
    """The nodes have new numbers and the same names."""

    def wiring(symbol: Symbol) -> dict[str, list[str]]:
        return {node.name: [entry.name for entry in node.inputs] for node in symbol.nodes}

    text = _text("resnet20_cifar10")
    before, after = wiring(load_json(text)), wiring(load_json(peer_symbol(text)))
    assert before.pop("sample_weight") == []
    before["softmax"].remove("sample_weight")
    assert after == before


def test_dropout_drops_nothing() -> None:
    text = _text("digits_regularized")
    still = json.loads(without_dropout(text))
    (dropout,) = (node for node in still["nodes"] if node["op"] == "Dropout")
    assert dropout["attrs"]["p"] == "0.0"
    assert without_dropout(_text("lenet_mnist")) == json.dumps(json.loads(_text("lenet_mnist")))
