"""Fusion of chains of operators into single steps with fewer passes over memory.

A chain is fused if the values between its operators have no other reader and are no results, and if
they, the other inputs and the output have one dtype. A fusion that keeps the value between its two
operators allows it a second reader. The longest chain wins; among equals, the one that begins
first. Steps with a user-given implementation or `fused: false` are left alone. In training the
numbers stay the same: gradients are summed in the order in which the original network reads its
values.

Needs: a forward graph before its gradient. Provides: fused steps at the positions of their chains'
last steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.graph.graph import Graph, Step, ValueId, writes
from mxrun.operator.fusion import FUSIONS, Fusion
from mxrun.operator.register import AnyProperty
from mxrun.passes.single_use import Readers, joint_name, may_fuse


def fuse(graph: Graph, without: Collection[str] = ()) -> Graph:
    """Return the graph with chains fused, except by the fusions named in `without`."""
    here = {step.prop.type_string for step in graph.steps if step.prop is not None}
    chains_of = FUSIONS.attribute("operators").items()
    named = [
        FUSIONS.get(name)
        for name, operators in chains_of
        if name not in without and here.issuperset(operators)
    ]
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
    keeps: bool


def _chain(
    graph: Graph, readers: Readers, fusions: Iterable[Fusion], first: Step, joined: set[str]
) -> _Chain | None:
    """Return a chain that begins with `first` and contains no step of another chain, or None."""
    for fusion in fusions:
        steps: list[Step] = []
        step: Step | None = first
        for operator in fusion.operators:
            if step is None or step.prop is None or step.prop.type_string != operator:
                break
            if step.name in joined or not may_fuse(step):
                break
            steps.append(step)
            find = readers.first_of_two if fusion.keeps else readers.only_one
            step = find(step.outputs[0])
        complete = len(steps) == len(fusion.operators)
        if complete and _of_one_type(graph, steps, fusion.keeps):
            prop = fusion.fuse(*(each.prop for each in steps))
            if prop is not None:
                return _Chain(tuple(steps), prop, fusion.keeps)
    return None


def _of_one_type(graph: Graph, steps: Sequence[Step], keeps: bool) -> bool:
    """Return whether the values between the steps and their other inputs all have one dtype.

    One kernel for the chain would round values of another dtype, or their gradients, elsewhere.
    keeps: whether the first step's inputs must have that dtype too.
    """
    values = [step.outputs[0] for step in steps]
    values += (value for step in steps[not keeps :] for value in step.reads)
    return len({graph.spec(value).dtype for value in values if value is not None}) == 1


def _with_chains(graph: Graph, chains: dict[str, _Chain], joined: set[str]) -> Graph:
    """Return the graph with each chain at the position of its last step.

    chains: by the name of the last step.
    """
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
    if chain.keeps:
        outputs = (between, first.outputs[0], *chain.steps[-1].outputs[1:])
    return replace(
        first,
        name=joint_name([step.name for step in chain.steps], names),
        prop=chain.prop,
        inputs=(*inputs, *first.inputs[arguments:]),
        outputs=outputs,
        requests=writes(outputs),
        readings=tuple(readings),
    )
