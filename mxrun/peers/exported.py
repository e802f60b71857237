"""Export of a network's symbol to the peers: MXNet's JSON without mxrun's extensions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_WEIGHTED = "use_sample_weight"


def peer_symbol(text: str) -> str:
    """Return the symbol JSON without the losses' sample weights, which are 1 in full batches."""
    document = json.loads(text)
    for node in document["nodes"]:
        if node.get("attrs", {}).pop(_WEIGHTED, "False") == "True":
            node["inputs"].pop()
    return json.dumps(_without_unread(document))


def without_dropout(text: str) -> str:
    """Return the symbol JSON with every Dropout rate set to 0, so that two runs can be compared."""
    document = json.loads(text)
    _drop_nothing(document)
    return json.dumps(document)


def _drop_nothing(document: Mapping[str, Any]) -> None:
    for node in document["nodes"]:
        if node["op"] == "Dropout":
            node.setdefault("attrs", {})["p"] = "0.0"
        for body in node.get("subgraphs", ()):
            _drop_nothing(body)


def _without_unread(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove variables that no node reads and no head names, and renumber the others."""
    nodes, heads = document["nodes"], document["heads"]
    read = {source[0] for node in nodes for source in node["inputs"]} | {h[0] for h in heads}
    kept = [i for i, node in enumerate(nodes) if i in read or node["op"] != "null"]
    position = {old: new for new, old in enumerate(kept)}
    rows = document["node_row_ptr"]
    row_pointer = [0]
    for index in kept:
        row_pointer.append(row_pointer[-1] + rows[index + 1] - rows[index])

    def moved(entries: list[list[int]]) -> list[list[int]]:
        return [[position[entry[0]], *entry[1:]] for entry in entries]

    return {
        **document,
        "nodes": [{**nodes[i], "inputs": moved(nodes[i]["inputs"])} for i in kept],
        "arg_nodes": [position[i] for i in kept if nodes[i]["op"] == "null"],
        "node_row_ptr": row_pointer,
        "heads": moved(heads),
    }
