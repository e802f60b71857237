"""Text form of a graph: every node with its inputs and parameters (MXNet's debug_str)."""

from __future__ import annotations

from mxrun.graph.attributes import shown
from mxrun.graph.symbol import Symbol

_RULE = "-" * 20


def debug_text(symbol: Symbol) -> str:
    """Return the outputs, and the nodes with inputs before users, one fact a line."""
    lines = ["Symbol Outputs:"]
    lines += [
        f"\toutput[{number}]={head.node.name}({head.index})"
        for number, head in enumerate(symbol.heads)
    ]
    for node in symbol.nodes:
        if node.is_variable:
            lines.append(f"Variable:{node.name}")
            continue
        lines += [_RULE, f"Op:{node.operator}, Name={node.name}", "Inputs:"]
        lines += [
            f"\targ[{number}]={entry.node.name}({entry.index})"
            for number, entry in enumerate(node.inputs)
        ]
        attributes = shown(node)
        if attributes:
            lines.append("Attrs:")
            lines += [f"\t{key}={value}" for key, value in attributes.items()]
    return "\n".join([*lines, ""])
