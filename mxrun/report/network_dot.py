"""Network in Graphviz's DOT language, for layouts and styles of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mxrun.report.network import network_title, node_lines, shape_text
from mxrun.report.network_fold import BLOCK, fold
from mxrun.report.palette import FAINT, FAMILY_COLOURS, LINE

Report = Mapping[str, Any]

# Opacity of the colour that fills a box.
_FILL = "29"
_STYLES = {"input": "rounded", "operator": "filled", "unapplied": "filled,dashed", BLOCK: "bold"}


def network_dot(report: Report, depth: int | None = None) -> str:
    """Return a digraph: a box per node, an edge per tensor with its shape.

    depth: see `fold`. Deterministic: equal reports give equal bytes. Language:
    graphviz.org/doc/info/lang.html.
    """
    nodes = report["nodes"]
    lines = [
        f"digraph {_quoted(str(report['name']))} {{",
        f"  label={_quoted(network_title(report))};",
        "  labelloc=t;",
        '  node [shape=box, fontname="DejaVu Sans Mono", fontsize=10];',
        f'  edge [fontname="DejaVu Sans Mono", fontsize=9, color="{LINE}", fontcolor="{FAINT}"];',
        *(f"  {statement};" for statement in _statements(fold(nodes, depth), nodes)),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _statements(drawn: Sequence[Report], nodes: Sequence[Report]) -> Iterator[str]:
    """Yield the statements of the nodes, then those of the edges."""
    by_name = {node["name"]: node for node in drawn}
    for node in drawn:
        label = "\n".join(node_lines(node, nodes))
        attributes = f'label={_quoted(label)}, style="{_STYLES[node["kind"]]}"'
        if node["kind"] == BLOCK:
            attributes += f', color="{LINE}"'
        if colour := FAMILY_COLOURS.get(node["family"]):
            attributes += f', color="{colour}", fillcolor="{colour}{_FILL}"'
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
