"""Layers whose states are carried from batch to batch."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.errors import SourceLocation
from mxrun.graph.carried import CARRIED
from mxrun.graph.node import Node, NodeEntry
from mxrun.operator.register import create


def state_name(layer: str, argument: str) -> str:
    """Return the name of the variable that holds a carried state."""
    return f"{layer}_carried_{argument}"


def carrying(
    name: str,
    outputs: Sequence[NodeEntry],
    states: Sequence[tuple[NodeEntry, NodeEntry]],
    place: SourceLocation | None,
) -> list[NodeEntry]:
    """Return the outputs of a layer; whoever reads one of them has the states carried.

    states: of each the variable that holds it, and its value at the end of the run.
    """
    variables, values = [state for state, _ in states], [value for _, value in states]
    prop = create(CARRIED, {"num_states": len(states)})
    return [
        NodeEntry(
            Node(
                f"{name}/carried{index}" if index else f"{name}/carried",
                prop,
                (output, *values, *variables),
                place=place,
            )
        )
        for index, output in enumerate(outputs)
    ]
