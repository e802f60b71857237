"""Parser of MXNet's symbol JSON, and its arrays as PyTorch's tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mxrun.peers.pytorch import AUXILIARY_INPUTS
from mxrun.peers.pytorch.parameters import Tensor
from mxrun.peers.pytorch.recurrence import BODY


@dataclass(frozen=True)
class SymbolNode:
    """One node: operator name (`null` for a variable), node name, parameters, inputs.

    inputs: pairs (node, output index).
    """

    operator: str
    name: str
    attributes: Mapping[str, str]
    inputs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SymbolGraph:
    """Nodes in topological order, and the symbol's outputs as (node, output index)."""

    nodes: tuple[SymbolNode, ...]
    heads: tuple[tuple[int, int], ...]

    @property
    def auxiliary(self) -> set[str]:
        """Names of the variables that an operator writes."""
        return {
            self.nodes[node.inputs[index][0]].name
            for node in self.nodes
            for index in AUXILIARY_INPUTS.get(node.operator, ())
        }


def read_symbol(text: str) -> SymbolGraph:
    """Parse symbol JSON; the key of parameters was `param`, then `attr`, now `attrs`."""
    content = json.loads(text)
    nodes = []
    for entry in content["nodes"]:
        attributes = entry.get("attrs") or entry.get("attr") or entry.get("param") or {}
        if "subgraphs" in entry:
            attributes = {**attributes, BODY: json.dumps(entry["subgraphs"][0])}
        sources = tuple((source[0], source[1]) for source in entry["inputs"])
        nodes.append(SymbolNode(entry["op"], entry["name"], attributes, sources))
    return SymbolGraph(tuple(nodes), tuple((head[0], head[1]) for head in content["heads"]))


def as_tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return tensors over the same memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
