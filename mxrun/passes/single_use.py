"""What passes that join steps ask of a graph: who reads a value alone, and may be joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mxrun.base.keywords import AUTO, PREFERRED
from mxrun.graph.graph import Graph, GraphBuilder, Step, ValueId


class Readers:
    """The readers of every value of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._readers: dict[ValueId, list[Step]] = {}
        for step in graph.steps:
            for value in step.reads:
                self._readers.setdefault(value, []).append(step)
        self._results = set(graph.results.values())

    def only_one(self, value: ValueId | None) -> Step | None:
        """The step that reads a value, where it is one, reads it once, and it is no result."""
        if value is None or value in self._results:
            return None
        readers = self._readers.get(value, [])
        return readers[0] if len(readers) == 1 else None


def may_join(step: Step) -> bool:
    """Whether the user left the step to be joined: said nothing against it, named no kernels."""
    return step.fused and step.implementation in (None, PREFERRED, AUTO)


def with_pairs(
    graph: Graph,
    pairs: Mapping[str, Step],
    made: Callable[[GraphBuilder, Step, Step], Iterable[Step]],
) -> Graph:
    """The graph with what is made of each pair of steps in the place of its second.

    pairs: by the second's name, the first.
    """
    gone = {step.name for step in pairs.values()}
    builder = GraphBuilder(graph)
    builder.steps = []
    for step in graph.steps:
        if step.name in pairs:
            builder.steps += made(builder, pairs[step.name], step)
        elif step.name not in gone:
            builder.step(step)
    return builder.build()


def joint_name(names: Sequence[str], taken: set[str]) -> str:
    """`unit1/bn+add+relu` of unit1/bn, unit1/add and unit1/relu; another one if it is taken."""
    scope = names[0]
    while scope and not all(name.startswith(f"{scope}/") for name in names):
        scope = scope.rpartition("/")[0]
    start = len(scope) + 1 if scope else 0
    joint = names[0][:start] + "+".join(name[start:] for name in names)
    while joint in taken:
        joint += "+"
    taken.add(joint)
    return joint
