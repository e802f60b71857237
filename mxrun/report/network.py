"""A network for people in a terminal: one row a node, the wiring as lanes before it.

A lane is the output of one node on its way to the last node that reads it:

    ○      data
    ●      conv1     reads the row above
    ├─●    branch    reads conv1, which goes on to add
    ●─╯    add       reads both lanes; the second ends
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

Report = Mapping[str, Any]

_MARKS = {"operator": "●", "unapplied": "◌", "input": "○"}
_MEANINGS = {
    "operator": "operator",
    "unapplied": "operator that nothing is wired to",
    "input": "input",
    "variable": "variables beside the operator that reads them",
}


def network_parts(report: Report) -> list[Table | Text]:
    """The network as a table whose first column draws the wiring, and what its marks mean."""
    table = Table(
        title=Text(network_title(report), "bold"), title_justify="left", box=box.SIMPLE_HEAD
    )
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
    """What is drawn: a network with its batch, or an operator."""
    batch = report["batch_size"]
    return str(report["name"]) if batch is None else f"{report['name']}, batch {batch}"


def drawn_nodes(nodes: Sequence[Report]) -> list[Report]:
    """The nodes that stand for themselves; other variables are named beside their readers."""
    return [node for node in nodes if node["kind"] != "variable"]


def variables_of(node: Report, nodes: Sequence[Report]) -> list[str]:
    """The variables a node reads and the arguments that nothing is wired to, by shape."""
    kinds = {other["name"]: other["kind"] for other in nodes}
    by_shape: dict[str, list[str]] = {}
    for part in node["inputs"]:
        if part["node"] is None or kinds[part["node"]] == "variable":
            own = part["node"] in (None, f"{node['name']}_{part['argument']}")
            name = part["argument"] if own else part["node"]
            by_shape.setdefault(shape_text(part["shape"]), []).append(name)
    return [f"{', '.join(names)} {shape}" for shape, names in by_shape.items()]


def shape_text(shape: Sequence[int | None] | None) -> str:
    """A shape: `64x1x28x28`, `scalar` without axes, `?` for what is not known."""
    if shape is None:
        return "?"
    return "x".join("?" if size is None else str(size) for size in shape) or "scalar"


def wiring(drawn: Sequence[Report]) -> Iterator[str]:
    """The lanes of each row: where the node stands, what it reads and what passes by."""
    readers = _last_readers(drawn)
    # The node whose output each lane carries; None: a free lane.
    lanes: list[str | None] = []
    for node in drawn:
        name = node["name"]
        read = [lanes.index(source) for source in _sources(node) if source in lanes]
        ending = [lane for lane in read if readers[lanes[lane] or ""] == name]
        own = min(ending, default=None)
        if own is None:
            own = _free_lane(lanes, right_of=max(read, default=-1))
        before = list(lanes)
        for lane in ending:
            lanes[lane] = None
        lanes[own] = name if name in readers else None
        yield _row(before, set(read) - {own}, set(ending), own, _MARKS[node["kind"]])
        while lanes and lanes[-1] is None:
            lanes.pop()


def _last_readers(drawn: Sequence[Report]) -> dict[str, str]:
    """For each node that another one reads, the last of its readers."""
    return {source: node["name"] for node in drawn for source in _sources(node)}


def _sources(node: Report) -> list[str]:
    """The nodes that a node reads, each once."""
    return list(dict.fromkeys(part["node"] for part in node["inputs"] if part["node"]))


def _free_lane(lanes: list[str | None], right_of: int) -> int:
    """The first lane that is free, beyond `right_of` where there is one; else a new one."""
    for lane in chain(range(right_of + 1, len(lanes)), range(right_of + 1)):
        if lanes[lane] is None:
            return lane
    lanes.append(None)
    return len(lanes) - 1


def _row(
    lanes: Sequence[str | None], joined: set[int], ending: set[int], own: int, mark: str
) -> str:
    """One row: lanes that pass (│), those the node reads (├ ┤ ╯ ...) and the node itself."""
    first, last = min((*joined, own)), max((*joined, own))
    text = ""
    for lane in range(max(len(lanes), own + 1)):
        passes = lane < len(lanes) and lanes[lane] is not None
        if lane == own:
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
    """How a lane meets the line to the node, which lies left of it, right of it, or both."""
    if lane == first:
        return "╰" if ends else "├"
    if lane == last:
        return "╯" if ends else "┤"
    return "┴" if ends else "┼"


def _without_shared(name: str, previous: str) -> str:
    """A name with spaces for the groups that it shares with the row above."""
    shared = 0
    for own, other in zip(name.split("/")[:-1], previous.split("/")[:-1], strict=False):
        if own != other:
            break
        shared += len(own) + 1
    # The slash stays, so that what follows is seen to go on.
    return name if shared == 0 else " " * (shared - 1) + name[shared - 1 :]


def _legend(nodes: Sequence[Report]) -> str:
    kinds = {node["kind"] for node in nodes}
    parts = [
        f"{_MARKS[kind]} {meaning}" if kind in _MARKS else meaning
        for kind, meaning in _MEANINGS.items()
        if kind in kinds
    ]
    return "  " + "   ".join(parts)
