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

from mxrun.report.figures import count_text
from mxrun.report.network_fold import BLOCK, deepest, drawn_nodes, fold, network_size
from mxrun.report.palette import FAMILY_COLOURS
from mxrun.report.tables import titled_table

Report = Mapping[str, Any]

_MAX_LINE_LENGTH = 44
_LANES = "dim"
_MARKS = {"operator": "●", "unapplied": "◌", "input": "○", BLOCK: "■"}
_MEANINGS = {
    "unapplied": "operator without connected inputs",
    "input": "input",
    BLOCK: "folded block",
}


def network_parts(report: Report, depth: int | None = None) -> list[Table | Text]:
    """Return the network as a table, with the edges in its first column, and a legend.

    depth: see `fold`.
    """
    table = titled_table(
        network_title(report), names=("node",), least_important=("variables", "output")
    )
    for column in ("", "node", "operator", "output", "variables"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    nodes = report["nodes"]
    drawn = fold(nodes, depth)
    previous = ""
    for node, lanes in zip(drawn, wiring(drawn), strict=True):
        name, colour = node_title(node), FAMILY_COLOURS.get(node["family"], "")
        table.add_row(
            _coloured(lanes, _MARKS[node["kind"]], colour),
            Text(_without_shared(name, previous)),
            Text(_operator(node), colour),
            Text("  ".join(shape_text(output["shape"]) for output in node["outputs"])),
            Text("; ".join(_details(node, nodes)), "dim"),
        )
        previous = name
    return [table, _legend(drawn), *_folding(nodes, drawn)]


def _coloured(lanes: str, mark: str, colour: str) -> Text:
    text = Text(lanes, _LANES)
    text.stylize(f"not dim {colour}", lanes.index(mark), lanes.index(mark) + 1)
    return text


def _operator(node: Report) -> str:
    if node["kind"] == BLOCK:
        return f"{node['layers']} layers"
    return "" if node["kind"] == "input" else str(node["operator"])


def _details(node: Report, nodes: Sequence[Report]) -> list[str]:
    if node["kind"] == BLOCK:
        return [f"{count_text(node['elements'])} parameters", operators_text(node)]
    return variables_of(node, nodes)


def network_title(report: Report) -> str:
    """Return the name of the network with its batch size, or of the operator."""
    batch = report["batch_size"]
    return str(report["name"]) if batch is None else f"{report['name']}, batch {batch}"


def size_text(nodes: Sequence[Report]) -> str:
    """Return the size of a network: `177 layers, 25.6 M parameters`."""
    layers, elements = network_size(nodes)
    return f"{layers} layer{'' if layers == 1 else 's'}, {count_text(elements)} parameters"


def node_title(node: Report) -> str:
    """Return the name of a node; of a folded block, with the number of equal ones."""
    if node["kind"] != BLOCK:
        return str(node["name"])
    return f"{node['title']} ×{node['count']}" if node["count"] > 1 else str(node["title"])


def operators_text(node: Report) -> str:
    """Return the operators of a folded block, the most frequent first: `9 Convolution, 9 ...`."""
    counts = sorted(node["operators"].items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {name}" for name, count in counts)


def variables_of(node: Report, nodes: Sequence[Report]) -> list[str]:
    """Return the variables that a node reads and its unconnected arguments, grouped by shape."""
    kinds = {other["name"]: other["kind"] for other in nodes}
    by_shape: dict[str, list[str]] = {}
    for part in node["inputs"]:
        if part["node"] is None or kinds.get(part["node"]) == "variable":
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
    """Yield the lines of a node's box: its name, its operator or the size of a block, then its
    variables with their shapes or the operators of a block.
    """
    yield node_title(node)
    if node["kind"] == "input":
        return
    if node["kind"] == BLOCK:
        yield f"{node['layers']} layers, {count_text(node['elements'])} parameters"
        yield from _filled(operators_text(node).split(", "), ", ", ",")
        return
    yield " ".join((node["operator"], *_parameter_texts(node["parameters"])))
    yield from _filled(variables_of(node, nodes), "; ", ";")


def _filled(parts: Sequence[str], separator: str, end: str) -> Iterator[str]:
    """Yield lines of the parts, of limited length; all but the last end in `end`."""
    line = ""
    for part in parts:
        if line and len(line) + len(part) > _MAX_LINE_LENGTH:
            yield line + end
            line = ""
        line = f"{line}{separator}{part}" if line else part
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


def _legend(drawn: Sequence[Report]) -> Text:
    """Return the families of the drawn operators in their colours, then the other marks."""
    kinds = {node["kind"] for node in drawn}
    text = Text(" ")
    for family in drawn_families(drawn):
        text.append(f" {_MARKS['operator']} {family} ", FAMILY_COLOURS[family])
    for kind, meaning in _MEANINGS.items():
        if kind in kinds:
            text.append(f" {_MARKS[kind]} {meaning} ", "dim")
    text.rstrip()
    return text


def drawn_families(drawn: Sequence[Report]) -> list[str]:
    """Return the families of all operators, those in folded blocks too, in a fixed order."""
    found = {node["family"] for node in drawn}
    found.update(family for node in drawn for family in node.get("families", ()))
    return [family for family in FAMILY_COLOURS if family in found]


def _folding(nodes: Sequence[Report], drawn: Sequence[Report]) -> Iterator[Text]:
    """Yield how to unfold blocks, if any are folded."""
    rows, levels = len(drawn_nodes(nodes)), deepest(nodes)
    if len(drawn) == rows:
        return
    counts = ((level, len(fold(nodes, level))) for level in range(1, levels))
    choices = ", ".join(f"{level} ({count} rows)" for level, count in counts)
    yield Text(f"  {rows} nodes in {len(drawn)} rows. --depth {choices} or all ({rows})", "dim")
