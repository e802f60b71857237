"""Utilities of fusing passes: single-use values, fusable steps, replacement of pairs of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mxrun.base.keywords import AUTO, PREFERRED
from mxrun.graph.graph import Graph, GraphBuilder, Step, ValueId

_TWO = 2


class Readers:
    """Readers of every value of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._readers: dict[ValueId, list[Step]] = {}
        for step in graph.steps:
            for value in step.reads:
                self._readers.setdefault(value, []).append(step)
        self._results = set(graph.results.values())

    def only_one(self, value: ValueId | None) -> Step | None:
        """Return the only reader of a value.

        None if the value is a result or is read more than once.
        """
        if value is None or value in self._results:
            return None
        readers = self._readers.get(value, [])
        return readers[0] if len(readers) == 1 else None

    def first_of_two(self, value: ValueId | None) -> Step | None:
        """Return the first of at most two readers of a value; None if the value is a result."""
        if value is None or value in self._results:
            return None
        readers = self._readers.get(value, [])
        return readers[0] if 0 < len(readers) <= _TWO else None


def may_fuse(step: Step) -> bool:
    """Return whether a step may be fused: not excluded by the user, and without named kernels."""
    return step.options.fused and step.options.implementation in (None, PREFERRED, AUTO)


def with_pairs(
    graph: Graph,
    following: Callable[[Step], Step | None],
    replacement: Callable[[GraphBuilder, Step, Step], Iterable[Step]],
) -> Graph:
    """Replace pairs of steps by what `replacement` returns, at the position of the second step.

    following: returns the second step of a pair by its first, or None.
    """
    seconds = ((step, following(step)) for step in graph.steps)
    pairs = {second.name: first for first, second in seconds if second is not None}
    gone = {step.name for step in pairs.values()}
    builder = GraphBuilder(graph)
    builder.steps = []
    for step in graph.steps:
        if step.name in pairs:
            builder.steps += replacement(builder, pairs[step.name], step)
        elif step.name not in gone:
            builder.step(step)
    return builder.build()


def joint_name(names: Sequence[str], taken: set[str]) -> str:
    """Return a unique name: `unit1/bn+add+relu` for unit1/bn, unit1/add and unit1/relu.

    If that name is taken, `+` is appended.
    """
    scope = names[0]
    while scope and not all(name.startswith(f"{scope}/") for name in names):
        scope = scope.rpartition("/")[0]
    start = len(scope) + 1 if scope else 0
    joint = names[0][:start] + "+".join(name[start:] for name in names)
    while joint in taken:
        joint += "+"
    taken.add(joint)
    return joint
