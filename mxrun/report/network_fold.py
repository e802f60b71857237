"""Blocks of a large network, folded into one node each.

Layers of a config's block are named `stage1/unit2/conv`: a block is a prefix of names. At depth 1
all layers below `stage1` are one node, at depth 2 all below `stage1/unit2`. Equal blocks in a row
become one node with a count. A block stays unfolded, one level deeper, if a path leaves it and
enters it again: the folded network has no cycles.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Report = Mapping[str, Any]

# Kind of a folded node.
BLOCK = "block"
# Nodes from which a network is large, and the number to which it is folded if its blocks permit.
_LARGE, _FOLDED = 45, 40


def drawn_nodes(nodes: Sequence[Report]) -> list[Report]:
    """Return the nodes that are drawn; variables are named beside their readers."""
    return [node for node in nodes if node["kind"] != "variable"]


def deepest(nodes: Sequence[Report]) -> int:
    """Return the depth at which no block is folded."""
    return max((node["name"].count("/") + 1 for node in drawn_nodes(nodes)), default=1)


def fold(nodes: Sequence[Report], depth: int | None = None) -> list[Report]:
    """Return the drawn nodes of a network with its blocks folded, in topological order.

    depth: number of levels of blocks that are drawn, at least 1; by default all levels of a small
    network, and as many of a large one as give a drawing of a page or two.

    A folded node has the kind `block`, and besides: `title`; `count`, the number of equal blocks
    in a row; `layers`, the number of operators; `elements`, the number of parameters; `families`
    and `operators`, the number of layers of each.
    """
    if depth is not None:
        return _folded_at(nodes, depth)
    found = drawn_nodes(nodes)
    if len(found) <= _LARGE:
        return found
    for level in range(deepest(nodes) - 1, 0, -1):
        found = _folded_at(nodes, level)
        if len(found) <= _FOLDED:
            break
    return found


def _folded_at(nodes: Sequence[Report], depth: int) -> list[Report]:
    drawn = drawn_nodes(nodes)
    if depth >= deepest(nodes):
        return drawn
    blocks = _acyclic(drawn, depth)
    order = _ordered(drawn, blocks)
    runs = _runs(drawn, blocks, order)
    owner = {node["name"]: runs[blocks[node["name"]]] for node in drawn}
    return list(_contracted(drawn, owner, list(dict.fromkeys(map(runs.__getitem__, order))), nodes))


def _acyclic(drawn: Sequence[Report], depth: int) -> dict[str, str]:
    """Return the block of each node, its own name if it is in none; the blocks have no cycles."""
    opened: set[str] = set()
    while True:
        blocks = {node["name"]: _block(node, depth, opened) for node in drawn}
        sizes = Counter(blocks.values())
        alone = {name: name if sizes[block] == 1 else block for name, block in blocks.items()}
        cyclic = {block for block in _in_cycles(drawn, alone) if sizes[block] > 1}
        if not cyclic:
            return alone
        opened |= cyclic


def _block(node: Report, depth: int, opened: set[str]) -> str:
    """Return the shortest prefix of at least `depth` levels that is not opened."""
    name: str = node["name"]
    parts = name.split("/")
    if node["kind"] == "input":
        return name
    prefixes = ("/".join(parts[:level]) for level in range(depth, len(parts)))
    # A block may have the name of a node, which is then drawn beside it.
    return next((f"{prefix}/" for prefix in prefixes if f"{prefix}/" not in opened), name)


def _sources(node: Report) -> list[str]:
    return [part["node"] for part in node["inputs"] if part["node"] is not None]


def _edges(drawn: Sequence[Report], blocks: Mapping[str, str]) -> set[tuple[str, str]]:
    return {
        (blocks[source], blocks[node["name"]])
        for node in drawn
        for source in _sources(node)
        if source in blocks and blocks[source] != blocks[node["name"]]
    }


def _in_cycles(drawn: Sequence[Report], blocks: Mapping[str, str]) -> set[str]:
    """Return the blocks on cycles, and on paths between cycles."""
    edges = _edges(drawn, blocks)
    left = set(blocks.values())
    while left:
        within = [(source, target) for source, target in edges if {source, target} <= left]
        inner = {source for source, _ in within} & {target for _, target in within}
        if inner == left:
            break
        left = inner
    return left


def _ordered(drawn: Sequence[Report], blocks: Mapping[str, str]) -> list[str]:
    """Return the blocks in topological order, in the order of their first nodes where possible."""
    first: dict[str, int] = {}
    for index, node in enumerate(drawn):
        first.setdefault(blocks[node["name"]], index)
    readers: dict[str, list[str]] = {}
    waiting = Counter[str]()
    for source, target in _edges(drawn, blocks):
        readers.setdefault(source, []).append(target)
        waiting[target] += 1
    ready = [(index, block) for block, index in first.items() if not waiting[block]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, block = heapq.heappop(ready)
        order.append(block)
        for reader in readers.get(block, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (first[reader], reader))
    return order


def _runs(
    drawn: Sequence[Report], blocks: Mapping[str, str], order: Sequence[str]
) -> dict[str, str]:
    """Return the first block of the run of equal blocks that each block is in."""
    edges = _edges(drawn, blocks)
    read: dict[str, set[str]] = {}
    readers: dict[str, set[str]] = {}
    for source, target in edges:
        read.setdefault(target, set()).add(source)
        readers.setdefault(source, set()).add(target)
    members: dict[str, list[Report]] = {}
    for node in drawn:
        members.setdefault(blocks[node["name"]], []).append(node)
    runs: dict[str, str] = {}
    for block in order:
        runs[block] = block
        sources = read.get(block, set())
        if len(sources) != 1 or len(members[block]) == 1:
            continue
        (previous,) = sources
        if (
            readers[previous] == {block}
            and _parent(previous) == _parent(block)
            and _form(members[previous]) == _form(members[block])
        ):
            runs[block] = runs[previous]
    return runs


def _parent(block: str) -> str:
    return block.rstrip("/").rpartition("/")[0]


def _form(members: Sequence[Report]) -> list[Any]:
    """Return what equal blocks have in common: operators, their parameters and their wiring."""
    places = {node["name"]: index for index, node in enumerate(members)}
    return [
        (
            node["operator"],
            tuple(node["parameters"].items()),
            [(places.get(part["node"]), part["output"]) for part in node["inputs"]],
        )
        for node in members
    ]


def _contracted(
    drawn: Sequence[Report],
    owner: Mapping[str, str],
    order: Sequence[str],
    nodes: Sequence[Report],
) -> Iterator[Report]:
    """Yield the folded nodes and the others, which read the outputs of folded ones."""
    members: dict[str, list[Report]] = {name: [] for name in order}
    for node in drawn:
        members[owner[node["name"]]].append(node)
    outputs = _outputs(drawn, owner)
    # By tensor, the folded node and the number of its output.
    places = {
        tensor: (name, index)
        for name, tensors in outputs.items()
        for index, tensor in enumerate(tensors)
        if len(members[name]) > 1
    }
    by_name, kinds = {node["name"]: node for node in drawn}, _kinds(nodes)
    for name in order:
        if len(members[name]) == 1:
            (node,) = members[name]
            yield {**node, "inputs": [_moved(part, places) for part in node["inputs"]]}
            continue
        read = [
            part
            for node in members[name]
            for part in node["inputs"]
            if part["node"] in owner and owner[part["node"]] != name
        ]
        inputs = {(part["node"], part["output"]): part for part in read}
        yield {
            "name": name,
            "kind": BLOCK,
            "operator": BLOCK,
            "family": BLOCK,
            "parameters": {},
            "outputs": [by_name[source]["outputs"][index] for source, index in outputs[name]],
            "inputs": [_moved(part, places) for part in inputs.values()],
            **_contents(members[name], name, kinds),
        }


def _outputs(drawn: Sequence[Report], owner: Mapping[str, str]) -> dict[str, list[tuple[str, int]]]:
    """Return the tensors of each folded node that others read, and those that nobody reads."""
    readers: dict[tuple[str, int], set[str]] = {}
    for node in drawn:
        for part in node["inputs"]:
            readers.setdefault((part["node"], part["output"]), set()).add(owner[node["name"]])
    found: dict[str, list[tuple[str, int]]] = {}
    for node in drawn:
        name = owner[node["name"]]
        tensors = [(node["name"], index) for index in range(len(node["outputs"]))]
        is_read = any(tensor in readers for tensor in tensors)
        found.setdefault(name, []).extend(
            tensor for tensor in tensors if not is_read or readers.get(tensor, {name}) != {name}
        )
    return found


def _moved(part: Report, places: Mapping[tuple[str, int], tuple[str, int]]) -> Report:
    tensor = (part["node"], part["output"])
    node, output = places.get(tensor, tensor)
    return {**part, "node": node, "output": output}


def _contents(members: Sequence[Report], name: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return title and figures of a folded node."""
    depth = name.count("/")
    blocks = list(dict.fromkeys("/".join(node["name"].split("/")[:depth]) for node in members))
    last = blocks[-1].rpartition("/")[2]
    return {
        "title": blocks[0] if len(blocks) == 1 else f"{blocks[0]} … {last}",
        "count": len(blocks),
        "layers": len(members),
        "elements": _elements(members, kinds),
        "families": Counter(node["family"] for node in members),
        "operators": Counter(node["operator"] for node in members),
    }


def _elements(members: Sequence[Report], kinds: Mapping[str, str]) -> int:
    """Return the number of parameters that nodes read; shared ones and unknown shapes count once
    and 0.
    """
    variables = {
        part["node"]: part["shape"]
        for node in members
        for part in node["inputs"]
        if not part["auxiliary"] and kinds.get(part["node"]) == "variable"
    }
    shapes = [shape for shape in variables.values() if shape is not None and None not in shape]
    return sum(map(math.prod, shapes))


def _kinds(nodes: Sequence[Report]) -> dict[str, str]:
    return {node["name"]: node["kind"] for node in nodes}


def network_size(nodes: Sequence[Report]) -> tuple[int, int]:
    """Return the number of operators of a network and of its parameters."""
    operators = [node for node in nodes if node["kind"] in ("operator", "unapplied")]
    return len(operators), _elements(operators, _kinds(nodes))
