"""Symbols in MXNet's JSON, and what MXNet infers and lists of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mxrun.base.tensor import PartialShape


@dataclass(frozen=True)
class Shapes:
    """Inferred shapes; None for an unknown rank or dimension."""

    arguments: Mapping[str, PartialShape]
    outputs: tuple[PartialShape, ...]
    auxiliary: Mapping[str, PartialShape]


@dataclass(frozen=True)
class SavedSymbol:
    """Symbol as MXNet saves it, and its lists of names."""

    json: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    auxiliary: tuple[str, ...]


def operator_symbol(
    operator: str, parameters: Mapping[str, str], inputs: Sequence[str], outputs: int = 1
) -> str:
    """Return symbol JSON of one operator over variables with these names, in argument order.

    The symbol's outputs are the operator's first `outputs` outputs.
    """
    nodes: list[dict[str, Any]] = [{"op": "null", "name": n, "inputs": []} for n in inputs]
    sources = [[index, 0, 0] for index in range(len(inputs))]
    nodes.append({"op": operator, "name": "operator", "attrs": dict(parameters), "inputs": sources})
    return json.dumps(
        {
            "nodes": nodes,
            "arg_nodes": list(range(len(inputs))),
            "node_row_ptr": list(range(len(nodes) + 1)),
            "heads": [[len(inputs), index, 0] for index in range(outputs)],
            "attrs": {"mxnet_version": ["int", 10901]},
        }
    )
