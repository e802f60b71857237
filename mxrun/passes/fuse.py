"""Chains of operators become one, in fewer passes over memory.

A chain goes into one step where the values between its operators have no other reader, are no
result and of the type of what it makes, as is what they are joined with. The longest chain wins,
among equals the one that begins first. What a user gave an implementation of its own, or said not
to fuse, stays as it is. In training the numbers stay the same: gradients are folded in the order in
which the network as it is written reads its values.

Needs: a forward graph before its gradient. Provides: fused steps in the places of their chains'
last ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from mxrun.graph.graph import Graph, Step, ValueId, writes
from mxrun.operator.fusion import FUSIONS, Fusion
from mxrun.operator.register import AnyProperty
from mxrun.passes.single_use import Readers, joint_name, may_join


def fuse(graph: Graph, without: Collection[str] = ()) -> Graph:
    """The same graph with chains as single steps, but for the fusions named in `without`."""
    named = [FUSIONS.get(name) for name in FUSIONS if name not in without]
    known = [one for one in named if not (one.inference and graph.is_train)]
    readers, chains, joined = Readers(graph), dict[str, _Chain](), set[str]()
    for length in sorted({len(one.operators) for one in known}, reverse=True):
        candidates = [one for one in known if len(one.operators) == length]
        for step in graph.steps:
            chain = _chain(graph, readers, candidates, step, joined)
            if chain is not None:
                chains[chain.steps[-1].name] = chain
                joined.update(each.name for each in chain.steps)
    return _with_chains(graph, chains, joined)


@dataclass(frozen=True)
class _Chain:
    steps: tuple[Step, ...]
    prop: AnyProperty


def _chain(
    graph: Graph, readers: Readers, fusions: Iterable[Fusion], first: Step, joined: set[str]
) -> _Chain | None:
    """A chain that begins with a step and shares none with those that are joined already."""
    for fusion in fusions:
        steps: list[Step] = []
        step: Step | None = first
        for operator in fusion.operators:
            if step is None or step.prop is None or step.prop.type_string != operator:
                break
            if step.name in joined or not may_join(step):
                break
            steps.append(step)
            step = readers.only_one(step.outputs[0])
        if len(steps) == len(fusion.operators) and _of_one_type(graph, steps):
            prop = fusion.fuse(*(each.prop for each in steps))
            if prop is not None:
                return _Chain(tuple(steps), prop)
    return None


def _of_one_type(graph: Graph, steps: Sequence[Step]) -> bool:
    """Whether all between the steps, and all that is joined with it, is of the last one's type.

    One kernel for the chain would round what comes in another type, or its gradient, elsewhere.
    """
    values = [step.outputs[0] for step in steps]
    values += (value for step in steps[1:] for value in step.reads)
    return len({graph.spec(value).dtype for value in values if value is not None}) == 1


def _with_chains(graph: Graph, chains: dict[str, _Chain], joined: set[str]) -> Graph:
    """The graph with each chain in the place of its last step, whose name finds it."""
    names = {step.name for step in graph.steps}
    steps = []
    for step in graph.steps:
        if step.name in chains:
            steps.append(_fused(chains[step.name], names))
        elif step.name not in joined:
            steps.append(step)
    return replace(graph, steps=tuple(steps))


def _fused(chain: _Chain, names: set[str]) -> Step:
    first = chain.steps[0]
    assert first.prop is not None
    arguments = len(first.prop.list_arguments())
    inputs: list[ValueId | None] = []
    readings: list[tuple[int, int]] = []
    between: ValueId | None = None
    for step in chain.steps:
        own = step.inputs[:arguments] if step is first else step.inputs
        for position, value in enumerate(own):
            if step is first or value != between:
                inputs.append(value)
                readings.append((step.order, position))
        between = step.outputs[0]
    outputs = (between, *first.outputs[1:])
    return replace(
        first,
        name=joint_name([step.name for step in chain.steps], names),
        prop=chain.prop,
        inputs=(*inputs, *first.inputs[arguments:]),
        outputs=outputs,
        requests=writes(outputs),
        readings=tuple(readings),
    )
