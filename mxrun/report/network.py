"""Drawing of a network in a terminal: one row per node, edges as lanes to the left.

A lane is the output of one node, from its row to the last node that reads it:

    ○      data
    ●      conv1     reads the row above
    ├─●    branch    reads conv1, whose lane continues to add
    ●─╯    add       reads both lanes; the second ends
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rich.table import Table
from rich.text import Text

from mxrun.report.tables import titled_table

Report = Mapping[str, Any]

_MAX_LINE_LENGTH = 44
_MARKS = {"operator": "●", "unapplied": "◌", "input": "○"}
_MEANINGS = {
    "operator": "operator",
    "unapplied": "operator without connected inputs",
    "input": "input",
    "variable": "variables beside the operator that reads them",
}


def network_parts(report: Report) -> list[Table | Text]:
    """Return the network as a table, with the edges in its first column, and a legend."""
    table = titled_table(network_title(report))
    for column in ("", "node", "operator", "output", "variables"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    drawn = drawn_nodes(report["nodes"])
    previous = ""
    for node, lanes in zip(drawn, wiring(drawn), strict=True):
        operator = "" if node["kind"] == "input" else node["operator"]
        table.add_row(
            Text(lanes, "cyan"),
            Text(_without_shared(node["name"], previous)),
            Text(operator),
            Text("  ".join(shape_text(output["shape"]) for output in node["outputs"])),
            Text("; ".join(variables_of(node, report["nodes"])), "dim"),
        )
        previous = node["name"]
    return [table, Text(_legend(report["nodes"]), "dim")]


def network_title(report: Report) -> str:
    """Return the name of the network with its batch size, or of the operator."""
    batch = report["batch_size"]
    return str(report["name"]) if batch is None else f"{report['name']}, batch {batch}"


def drawn_nodes(nodes: Sequence[Report]) -> list[Report]:
    """Return the nodes that have a row; other variables are named beside their readers."""
    return [node for node in nodes if node["kind"] != "variable"]


def variables_of(node: Report, nodes: Sequence[Report]) -> list[str]:
    """Return the variables that a node reads and its unconnected arguments, grouped by shape."""
    kinds = {other["name"]: other["kind"] for other in nodes}
    by_shape: dict[str, list[str]] = {}
    for part in node["inputs"]:
        if part["node"] is None or kinds[part["node"]] == "variable":
            own = part["node"] in (None, f"{node['name']}_{part['argument']}")
            name = part["argument"] if own else part["node"]
            by_shape.setdefault(shape_text(part["shape"]), []).append(name)
    return [f"{', '.join(names)} {shape}" for shape, names in by_shape.items()]


def shape_text(shape: Sequence[int | None] | None) -> str:
    """Return a shape as text: `64x1x28x28`, `scalar` without axes, `?` for unknown sizes."""
    if shape is None:
        return "?"
    return "x".join("?" if size is None else str(size) for size in shape) or "scalar"


def node_lines(node: Report, nodes: Sequence[Report]) -> Iterator[str]:
    """Yield the lines of a node's box: name, operator, then its variables with their shapes."""
    yield node["name"]
    if node["kind"] == "input":
        return
    yield " ".join((node["operator"], *_parameter_texts(node["parameters"])))
    line = ""
    for part in variables_of(node, nodes):
        if line and len(line) + len(part) > _MAX_LINE_LENGTH:
            yield line + ";"
            line = ""
        line = f"{line}; {part}" if line else part
    if line:
        yield line


def _parameter_texts(parameters: Mapping[str, str]) -> Iterator[str]:
    """Yield the parameters that describe an operator: types such as `relu`, kernels as `3x3`."""
    for name, value in parameters.items():
        if name == "kernel":
            yield value.strip("(),").replace(", ", "x")
        elif name.endswith("_type"):
            yield value


def wiring(drawn: Sequence[Report]) -> Iterator[str]:
    """Yield the lanes of each row: the node, its inputs and the lanes that pass."""
    readers = _last_readers(drawn)
    # Name of the node whose output each lane carries; None for a free lane.
    lanes: list[str | None] = []
    for node in drawn:
        name = node["name"]
        read = [lanes.index(source) for source in _sources(node) if source in lanes]
        ending = [lane for lane in read if readers[lanes[lane] or ""] == name]
        node_lane = min(ending, default=None)
        if node_lane is None:
            node_lane = _free_lane(lanes, right_of=max(read, default=-1))
        before = list(lanes)
        for lane in ending:
            lanes[lane] = None
        lanes[node_lane] = name if name in readers else None
        yield _row(before, set(read) - {node_lane}, set(ending), node_lane, _MARKS[node["kind"]])
        while lanes and lanes[-1] is None:
            lanes.pop()


def _last_readers(drawn: Sequence[Report]) -> dict[str, str]:
    """Return the last reader of each node that has one."""
    return {source: node["name"] for node in drawn for source in _sources(node)}


def _sources(node: Report) -> list[str]:
    """Return the nodes that a node reads, without duplicates."""
    return list(dict.fromkeys(part["node"] for part in node["inputs"] if part["node"]))


def _free_lane(lanes: list[str | None], right_of: int) -> int:
    """Return the first free lane to the right of `right_of`, else any free lane, else a new one."""
    for lane in chain(range(right_of + 1, len(lanes)), range(right_of + 1)):
        if lanes[lane] is None:
            return lane
    lanes.append(None)
    return len(lanes) - 1


def _row(
    lanes: Sequence[str | None], joined: set[int], ending: set[int], node_lane: int, mark: str
) -> str:
    """Return one row: lanes that pass (│), lanes that the node reads (├ ┤ ╯ ...) and the node."""
    first, last = min((*joined, node_lane)), max((*joined, node_lane))
    text = ""
    for lane in range(max(len(lanes), node_lane + 1)):
        passes = lane < len(lanes) and lanes[lane] is not None
        if lane == node_lane:
            text += mark
        elif lane in joined:
            text += _joint(lane, first, last, lane in ending)
        elif passes:
            text += "│"
        else:
            text += "─" if first < lane < last else " "
        text += "─" if first <= lane < last else " "
    return text.rstrip()


def _joint(lane: int, first: int, last: int, ends: bool) -> str:
    """Return the character that joins a lane to the line to the node.

    The line runs to the left of the lane, to its right, or to both sides.
    """
    if lane == first:
        return "╰" if ends else "├"
    if lane == last:
        return "╯" if ends else "┤"
    return "┴" if ends else "┼"


def _without_shared(name: str, previous: str) -> str:
    """Return a name with spaces in place of the groups that it shares with the row above."""
    shared = 0
    for own, other in zip(name.split("/")[:-1], previous.split("/")[:-1], strict=False):
        if own != other:
            break
        shared += len(own) + 1
    # The slash stays, to mark the name as a continuation.
    return name if shared == 0 else " " * (shared - 1) + name[shared - 1 :]


def _legend(nodes: Sequence[Report]) -> str:
    kinds = {node["kind"] for node in nodes}
    parts = [
        f"{_MARKS[kind]} {meaning}" if kind in _MARKS else meaning
        for kind, meaning in _MEANINGS.items()
        if kind in kinds
    ]
    return "  " + "   ".join(parts)
