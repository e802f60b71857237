"""Composites: operators that can be written as a network of others.

A layer with `fused: false` runs that network in place of its own operator. Its nodes are named
after the layer: `lstm/l0/step`. The symbol keeps the layer, which is what JSON holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from mxrun.base.dataclass import dataclass

# Output of a node; only builders look inside.
Entry: TypeAlias = Any
# (sequences and memories at a step, by name) -> (outputs of the step, memories after it).
StepBody: TypeAlias = Callable[[Mapping[str, Entry]], tuple[Sequence[Entry], Mapping[str, Entry]]]


@dataclass(frozen=True)
class RecurrentNetwork:
    """Network that runs for every step of its sequences, whose steps are their first axis.

    sequences: read at the present step. initial: values of memories before the first step; None
    for zeros. shared: tensors that all steps read. is_reversed: whether the last step runs first.
    """

    sequences: Mapping[str, Entry]
    initial: Mapping[str, Entry | None]
    shared: Mapping[str, Entry]
    body: StepBody
    is_reversed: bool = False


class CompositeBuilder(Protocol):
    """Builder of the nodes of a composite."""

    def apply(
        self,
        operator: str,
        name: str,
        inputs: Sequence[Entry],
        parameters: Mapping[str, object] | None = None,
    ) -> Sequence[Entry]:
        """Return the visible outputs of an operator."""

    def recur(
        self, name: str, network: RecurrentNetwork
    ) -> tuple[Sequence[Entry], Mapping[str, Entry]]:
        """Return the outputs of all steps, stacked, and the memories after the last one."""
