"""Network in Graphviz's DOT language, for layouts and styles of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mxrun.report.network import drawn_nodes, network_title, node_lines, shape_text

Report = Mapping[str, Any]

_ATTRIBUTES = {
    "input": 'shape=box, style="rounded"',
    "unapplied": 'shape=box, style="dashed"',
    "operator": "shape=box",
}


def network_dot(report: Report) -> str:
    """Return a digraph: a box per node, an edge per tensor with its shape.

    Deterministic: equal reports give equal bytes. Language: graphviz.org/doc/info/lang.html.
    """
    nodes = report["nodes"]
    lines = [
        f"digraph {_quoted(str(report['name']))} {{",
        f"  label={_quoted(network_title(report))};",
        "  labelloc=t;",
        *(f"  {statement};" for statement in _statements(drawn_nodes(nodes), nodes)),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _statements(drawn: Sequence[Report], nodes: Sequence[Report]) -> Iterator[str]:
    """Yield the statements of the nodes, then those of the edges."""
    by_name = {node["name"]: node for node in drawn}
    for node in drawn:
        label = "\n".join(node_lines(node, nodes))
        attributes = f"label={_quoted(label)}, {_ATTRIBUTES[node['kind']]}"
        yield f"{_quoted(node['name'])} [{attributes}]"
    for node in drawn:
        for part in node["inputs"]:
            if part["node"] in by_name:
                source = by_name[part["node"]]["outputs"][part["output"]]
                ends = f"{_quoted(part['node'])} -> {_quoted(node['name'])}"
                yield f"{ends} [label={_quoted(shape_text(source['shape']))}]"


def _quoted(text: str) -> str:
    """Return a text as a DOT string; a line break becomes DOT's centred break."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n") + '"'
