"""States that carry values from each run of a phase to the next: their names, and their marks."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.errors import SourceLocation
from mxrun.graph.node import Node, NodeEntry
from mxrun.operator.register import create

# Operator that marks an output of a layer whose states are carried.
CARRIED = "_carried"

# A user's names have no colon.
_EVALUATION = ":evaluation"


def evaluation_state(name: str) -> str:
    """Return the name of the tensor in which evaluation has the carried state `name`.

    What training carries is thus the same after an evaluation in the middle of it.
    """
    return f"{name}{_EVALUATION}"


def is_evaluation_state(name: str) -> bool:
    """Return whether a tensor is a carried state of evaluation, which no checkpoint holds."""
    return name.endswith(_EVALUATION)


def state_of(name: str) -> str:
    """Return the name of a carried state in the network."""
    return name.removesuffix(_EVALUATION)


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
