"""Chains of operators become one: fewer passes over memory, the same numbers.

A chain goes into one step where the values between its operators have no other reader and are no
result. The longest chain wins, then the one that begins first. What a user gave an implementation
of its own, or said not to fuse, stays as it is.

Needs: a forward graph before its gradient. Provides: fused steps in the places of their chains'
last ones.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mxrun.graph.graph import Graph, Step, ValueId, writes
from mxrun.operator.fusion import FUSIONS, Fusion
from mxrun.operator.register import AnyProperty


def fuse(graph: Graph) -> Graph:
    """The same graph with chains as single steps."""
    known = [one for one in map(FUSIONS.get, FUSIONS) if not (one.inference and graph.is_train)]
    chains = Chains(graph)
    for one in sorted(known, key=lambda one: -len(one.operators)):
        for step in graph.steps:
            chains.begin(one, step)
    return chains.fused()


@dataclass(frozen=True)
class _Chain:
    steps: tuple[Step, ...]
    prop: AnyProperty


class Chains:
    """The chains found so far, none of which share a step."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers: dict[ValueId, list[Step]] = {}
        for step in graph.steps:
            for value in step.reads():
                self.readers.setdefault(value, []).append(step)
        self.results = set(graph.results.values())
        # By the names of the last step and of those before it.
        self.chains: dict[str, _Chain] = {}
        self.gone: set[str] = set()

    def begin(self, fusion: Fusion, first: Step) -> None:
        """Take the chain that begins with a step, if there is one."""
        steps = [first]
        for operator in fusion.operators:
            last = steps[-1]
            assert last.prop is not None
            if last.prop.type_string != operator or not self.is_free(last):
                return
            if len(steps) == len(fusion.operators):
                break
            following = self.only_reader(last.outputs[0])
            if following is None:
                return
            steps.append(following)
        prop = fusion.fuse(*(step.prop for step in steps))
        if prop is not None:
            self.chains[steps[-1].name] = _Chain(tuple(steps), prop)
            self.gone.update(step.name for step in steps[:-1])

    def is_free(self, step: Step) -> bool:
        """Whether the step may become part of a chain."""
        named = step.implementation is not None
        taken = step.name in self.gone or step.name in self.chains
        return step.fused and not named and not taken

    def only_reader(self, value: ValueId | None) -> Step | None:
        """The step that reads a value, where it is one and the value is no result."""
        if value is None or value in self.results:
            return None
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 else None

    def fused(self) -> Graph:
        """The graph with each chain in the place of its last step."""
        steps = [
            _fused(self.chains[step.name]) if step.name in self.chains else step
            for step in self.graph.steps
            if step.name not in self.gone
        ]
        return replace(self.graph, steps=tuple(steps))


def _fused(chain: _Chain) -> Step:
    first, *others = chain.steps
    assert first.prop is not None
    arguments = len(first.prop.list_arguments())
    inputs = list(first.inputs[:arguments])
    before = first
    for step in others:
        inputs += [value for value in step.inputs if value != before.outputs[0]]
        before = step
    outputs = (before.outputs[0], *first.outputs[1:])
    return replace(
        first,
        name=joint_name([step.name for step in chain.steps]),
        prop=chain.prop,
        inputs=(*inputs, *first.inputs[arguments:]),
        outputs=outputs,
        requests=writes(outputs),
    )


def joint_name(names: Sequence[str]) -> str:
    """`unit1/bn+add+relu` of unit1/bn, unit1/add and unit1/relu."""
    shared = posixpath.commonpath([name.rpartition("/")[0] for name in names])
    start = len(shared) + 1 if shared else 0
    return names[0][:start] + "+".join(name[start:] for name in names)
