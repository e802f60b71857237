"""Body of a recurrence as a graph of one step, and its division into a forward and a backward loop.

Kernels are selected for the forward and the backward steps of one iteration together. What the
backward steps read is read again from the enclosing graph, computed again if it is a view or
another layout of such a tensor, or kept for every iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import FLOAT32
from mxrun.base.layer_options import LayerOptions
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.graph.gradient import Differentiated
from mxrun.graph.graph import (
    Graph,
    GraphBuilder,
    MemoryClass,
    Step,
    StepKind,
    ValueId,
    writes,
)
from mxrun.graph.lower import lower
from mxrun.graph.recurrence.operator import RecurrenceProperty
from mxrun.graph.symbol import Symbol
from mxrun.graph.trainability import reached
from mxrun.operator.register import create
from mxrun.passes.dead_code import eliminate_dead_code
from mxrun.passes.split_backward import split_backward

# Prepares the kernels of a graph, and of all within it.
Select = Callable[[Graph], Graph]


@dataclass(frozen=True)
class BodyPasses:
    """Passes of a compilation that the body of a recurrence needs.

    fuse: from a forward graph to one with dtypes and fused operators. differentiate: appends the
    backward steps, given the requested sources and the gradients of heads. select: prepares all
    kernels. segment: number of iterations that run forward again together in backward; None: all
    that backward reads is kept. is_cheap: whether backward runs a step again instead of keeping its
    outputs; None: it runs none again.
    """

    fuse: Select
    differentiate: Callable[[Graph, Collection[str], Mapping[ValueId, ValueId]], Differentiated]
    select: Select
    segment: int | None = None
    is_cheap: Callable[[Step], bool] | None = None


def output_name(index: int) -> str:
    """Return the name of the body's result for a stacked output."""
    return f"output:{index}"


def next_name(memory: str) -> str:
    """Return the name of the body's result for the next value of a memory."""
    return f"{memory}:next"


def gradient_name(name: str) -> str:
    """Return the name of the gradient of a source or result of the body."""
    return f"{name}:gradient"


def sum_name(name: str) -> str:
    """Return the name of the running sum of a variable's gradient."""
    return f"{name}:sum"


def forward_body(
    prop: RecurrenceProperty,
    arguments: Sequence[TensorSpec],
    data: Collection[str],
    is_train: bool,
    fuse: Select,
    carried: Collection[str] = (),
) -> Graph:
    """Return the forward graph of one step, whose results have memory of their own.

    data: variables of the body that are no parameters. carried: memories whose next value
    overwrites the present one.
    """
    inferred = prop.body_specs(arguments)
    symbol = Symbol(prop.body)
    builder = GraphBuilder(lower(symbol, inferred, data, is_train))
    heads = {head: builder.results[head.name] for head in prop.body}
    builder.results.clear()
    taken: set[ValueId] = set(builder.sources.values())
    roots = builder.build().roots()
    updates = [each for each in prop.memories if each.name in {*carried} & {*builder.sources}]
    for memory in prop.memories:
        name, value = next_name(memory.name), heads[memory.head]
        if memory not in updates or roots[value] in taken:
            _add_result(builder, name, value, taken, StepKind.FORWARD)
    for index, head in enumerate(prop.stacked):
        _add_result(builder, output_name(index), heads[head], taken, StepKind.FORWARD)
    for memory in updates:
        name = next_name(memory.name)
        value = builder.results.get(name, heads[memory.head])
        old = builder.sources[memory.name]
        _add_update(builder, f"{name}:update", "_copy", (value,), old)
        builder.results[name] = builder.results.pop(f"{name}:update")
    return fuse(builder.build())


def _add_result(
    builder: GraphBuilder, name: str, value: ValueId, taken: set[ValueId], kind: StepKind
) -> None:
    """Add the result `name` in float32: a view of the value, or a copy if its memory is taken.

    Readers within the body come before this step, so their gradients are summed before those from
    outside.
    """
    source = builder.values[value]
    root = builder.build().roots()[value]
    if root in taken:
        prop = create("_copy", {})
    else:
        prop = create("Reshape", {"shape": source.spec.shape or (1,)})
        taken.add(root)
    made = builder.value(name, source.spec, source.memory_class)
    if kind is StepKind.FORWARD:
        made_class = MemoryClass.ACTIVATIONS
        builder.values[made] = replace(builder.values[made], memory_class=made_class)
    order = len(builder.steps)
    step = Step(name, kind, prop, (value,), (made,), writes((made,)), order=order)
    builder.step(replace(step, options=LayerOptions(precision=FLOAT32)))
    builder.results[name] = made


@dataclass(frozen=True)
class BackwardRequestOfBody:
    """Gradients of one step.

    heads: results whose gradients are given. memories: memories whose gradients pass on to earlier
    steps. ended: those of them that no head depends on, whose gradients are zeros but for the last
    steps. sequences, others: variables with a requested gradient that some head depends on.
    """

    heads: tuple[str, ...]
    memories: tuple[str, ...]
    ended: tuple[str, ...]
    sequences: tuple[str, ...]
    others: tuple[str, ...]


def requested_gradients(
    prop: RecurrenceProperty,
    forward: Graph,
    heads: Iterable[str],
    requested: Collection[str],
) -> BackwardRequestOfBody:
    """Return the gradients of one step that are needed for the requested ones of all steps.

    heads: results of the body with a gradient from outside.
    """
    live = dict.fromkeys(heads)
    memories: dict[str, None] = {}
    names = [memory.name for memory in prop.memories if memory.name in forward.sources]
    while True:
        values = {forward.results[name] for name in live}
        found = reached(forward, [name for name in names if _is_float(forward, name)], values)
        new = [name for name in found if name not in memories]
        if not new:
            break
        memories.update(dict.fromkeys(new))
        live.update(dict.fromkeys(map(next_name, new)))
    wanted = [
        name
        for name in (*prop.parameters.sequences, *prop.others)
        if name in requested and name in forward.sources
    ]
    found = reached(forward, wanted, values)
    sequences = tuple(name for name in found if name in prop.parameters.sequences)
    others = tuple(name for name in found if name not in sequences)
    ended = [
        memory.name
        for memory in prop.memories
        if next_name(memory.name) in live and memory.name not in memories
    ]
    return BackwardRequestOfBody(
        heads=tuple(live),
        memories=(*memories, *ended),
        ended=tuple(ended),
        sequences=sequences,
        others=others,
    )


def _is_float(graph: Graph, name: str) -> bool:
    return "float" in graph.spec(graph.sources[name]).dtype


def joint_body(
    forward: Graph, wanted: BackwardRequestOfBody, carried: Collection[str], passes: BodyPasses
) -> Graph:
    """Return forward and backward steps of one iteration, with kernels.

    carried: memories whose gradient is one tensor that every iteration overwrites.
    """
    builder = GraphBuilder(forward)
    heads: dict[ValueId, ValueId] = {}
    for name in wanted.heads:
        value = forward.results[name]
        given = builder.source(gradient_name(name), forward.spec(value), MemoryClass.IO)
        heads[value] = given
    passed_on = (name for name in wanted.memories if name not in wanted.ended)
    requested = (*passed_on, *wanted.sequences, *wanted.others)
    differentiated = passes.differentiate(builder.build(), requested, heads)
    builder = GraphBuilder(split_backward(differentiated.graph))
    gradients = {**differentiated.gradients}
    for name in wanted.ended:
        gradients[name] = _zeros(builder, f"{gradient_name(name)}:zero", next_name(name))
    graph = builder.build()
    taken, roots = set(builder.sources.values()), graph.roots()
    updated = {name: gradients[name] for name in wanted.memories if name in carried}
    for name, value in updated.items():
        # The gradient of another memory is read before any of them is overwritten.
        if roots[value] in taken:
            updated[name] = _copied(builder, f"{gradient_name(name)}:before", value)
    for name in (*wanted.sequences, *wanted.memories):
        if name not in updated:
            _add_result(builder, gradient_name(name), gradients[name], taken, StepKind.BACKWARD)
    for name in wanted.others:
        target = sum_name(name)
        part = gradients[name]
        total = builder.source(target, builder.values[part].spec, MemoryClass.IO)
        _add_update(builder, target, "elemwise_add", (total, part), total)
    # Last, as a sum may read the gradient of a memory that is a variable.
    for name, value in updated.items():
        state = builder.sources[gradient_name(next_name(name))]
        _add_update(builder, gradient_name(name), "_copy", (value,), state)
    return passes.select(eliminate_dead_code(builder.build()))


def _zeros(builder: GraphBuilder, name: str, result: str) -> ValueId:
    """Add zeros in the shape of a result to the backward part of a body."""
    spec = builder.values[builder.results[result]].spec
    made = builder.value(name, spec, MemoryClass.ACTIVATION_GRADIENTS)
    prop = create("_zeros", {"shape": spec.shape, "dtype": spec.dtype})
    builder.step(Step(name, StepKind.BACKWARD, prop, (), (made,), writes((made,))))
    return made


def _copied(builder: GraphBuilder, name: str, value: ValueId) -> ValueId:
    """Add a copy of a value in the backward part of a body."""
    made = builder.value(name, builder.values[value].spec, MemoryClass.ACTIVATIONS)
    prop = create("_copy", {})
    builder.step(Step(name, StepKind.BACKWARD, prop, (value,), (made,), writes((made,))))
    return made


def _add_update(
    builder: GraphBuilder, name: str, operator: str, inputs: tuple[ValueId, ...], old: ValueId
) -> None:
    """Add a result that overwrites a source."""
    made = builder.value(f"{name}_next", builder.values[old].spec, MemoryClass.IO)
    builder.mutations[made] = old
    step = Step(name, StepKind.UPDATE, create(operator, {}), inputs, (made,), writes((made,)))
    builder.step(replace(step, options=LayerOptions(precision=FLOAT32)))
    builder.results[name] = made


@dataclass(frozen=True)
class DividedBody:
    """Forward and backward part of one step, with kernels.

    plain: the forward part without what it keeps. kept: specs of what forward keeps for backward,
    by the name of the forward part's result and of the backward part's source.
    """

    plain: Graph
    forward: Graph
    backward: Graph
    kept: Mapping[str, TensorSpec]


def divide(
    graph: Graph,
    forward_results: Collection[str],
    shared: Collection[str] = (),
    is_cheap: Callable[[Step], bool] | None = None,
) -> DividedBody:
    """Divide a graph with kernels: what backward reads of forward becomes a source.

    shared: sources that are the same in all iterations; what depends on these alone is computed
    again for backward, once before its loop. is_cheap: whether a step runs again in backward, where
    its inputs are there, instead of keeping its outputs.
    """
    forward_steps = _forward_steps(graph, forward_results)
    names = {step.name for step in forward_steps}
    others = [step for step in graph.steps if step.name not in names]
    invariant = _invariant_steps(forward_steps, {graph.sources[n] for n in shared})
    division = _Division(graph, forward_steps, forward_results, others, invariant)
    if is_cheap is not None:
        again = invariant | division.available(is_cheap)
        division = _Division(graph, forward_steps, forward_results, others, again)
    return division.divided()


def _forward_steps(graph: Graph, results: Collection[str]) -> tuple[Step, ...]:
    """Return the forward steps and what they and the forward results need."""
    needed = {graph.results[name] for name in results}
    found = []
    for step in reversed(graph.steps):
        # What was hoisted out of a backward loop within is for that loop alone.
        is_own = step.kind is StepKind.FORWARD and not step.hoisted
        if is_own or not needed.isdisjoint(step.writes):
            needed.update(step.reads)
            found.append(step)
    return tuple(reversed(found))


def _invariant_steps(steps: Sequence[Step], shared: set[ValueId]) -> set[str]:
    """Return the names of the steps that depend on the values `shared` alone."""
    known, found = {*shared}, set()
    for step in steps:
        if step.loop is None and step.reads and known.issuperset(step.reads):
            known.update(step.writes)
            found.add(step.name)
    return found


class _Division:
    """Backward part under construction: its steps, and what it reads of the forward part."""

    def __init__(
        self,
        graph: Graph,
        forward_steps: tuple[Step, ...],
        results: Collection[str],
        others: Sequence[Step],
        again: Collection[str] = (),
    ) -> None:
        """Add the backward steps `others`; the forward steps named in `again` run again."""
        self._graph, self._forward = graph, forward_steps
        self._results = {name: graph.results[name] for name in results}
        self._producer = {value: step for step in forward_steps for value in step.writes}
        self._memory = graph.roots()
        self._stored = {self._memory[value]: name for name, value in self._results.items()}
        self._given = set(graph.sources.values())
        self._steps: list[Step] = []
        self._sources = {value: name for name, value in graph.sources.items()}
        self._kept: dict[ValueId, str] = {}
        self._repeated: set[str] = set()
        self._again = set(again)
        for step in others:
            self._add(step)

    def available(self, is_cheap: Callable[[Step], bool]) -> set[str]:
        """Return the cheap forward steps whose outputs are kept, and whose inputs are there."""
        kept = {value for value, name in self._kept.items() if name not in self._results}
        there = {*self._kept, *self._given}
        found = set()
        for step in self._forward:
            is_kept = not kept.isdisjoint(step.writes)
            if not is_kept or step.loop is not None or step.is_view or not is_cheap(step):
                continue
            inputs = all(value in there or self._is_stored(value) for value in step.reads)
            if inputs and not any(map(self._is_stored, step.writes)):
                found.add(step.name)
        return found

    def _is_stored(self, value: ValueId) -> bool:
        stored = self._stored.get(self._memory[value])
        return stored is not None and self._is_whole(value, stored)

    def _add(self, step: Step) -> None:
        """Append a backward step, after what has to be computed again for it."""
        for value in step.reads:
            self._require(value)
        self._steps.append(step)

    def _require(self, value: ValueId) -> None:
        step = self._producer.get(value)
        if step is None or value in self._kept:
            return
        is_stored = any(map(self._is_stored, step.writes))
        is_again = step.name in self._again and not is_stored
        if step.is_view or is_again or self._is_reorder_of_source(step):
            if step.name not in self._repeated:
                self._repeated.add(step.name)
                self._add(replace(step, name=f"{step.name}:again", repeats=step.name))
            return
        root = self._memory[value]
        stored = self._stored.get(root)
        is_stored = stored is not None and self._is_whole(value, stored)
        self._kept[value] = stored if stored is not None and is_stored else f"kept:{value}"

    def _is_whole(self, value: ValueId, stored: str) -> bool:
        """Return whether a forward result has all bytes of a value."""
        own, other = self._graph.spec(value), self._graph.spec(self._results[stored])
        return own.nbytes == other.nbytes and own.layout == other.layout

    def _is_reorder_of_source(self, step: Step) -> bool:
        """Return whether a step only changes the layout of a source."""
        if step.kind is not StepKind.REORDER:
            return False
        (value,) = step.reads
        while value in self._producer and self._producer[value].is_view:
            value = self._producer[value].reads[0]
        return value in self._given

    def divided(self) -> DividedBody:
        """Return both parts."""
        graph = self._graph
        kept = {name: value for value, name in self._kept.items()}
        own = {name: value for name, value in kept.items() if name not in self._results}
        forward = _part(graph, self._forward, {}, {**self._results, **own})
        plain = _part(graph, self._needed_forward(), {}, self._results)
        others = {name: value for name, value in graph.results.items() if name not in self._results}
        backward = _part(graph, tuple(self._steps), kept, others)
        specs = {name: graph.spec(value) for name, value in kept.items()}
        return DividedBody(plain, forward, backward, specs)

    def _needed_forward(self) -> tuple[Step, ...]:
        """Return the forward steps that the forward results need."""
        needed, found = set(self._results.values()), []
        for step in reversed(self._forward):
            if not needed.isdisjoint(step.writes):
                needed.update(step.reads)
                found.append(step)
        return tuple(reversed(found))


def _part(
    graph: Graph,
    steps: tuple[Step, ...],
    given: Mapping[str, ValueId],
    results: Mapping[str, ValueId],
) -> Graph:
    """Return a part of a graph; given: further sources."""
    written = {value for step in steps for value in step.writes}
    mutations = {new: old for new, old in graph.mutations.items() if new in written}
    read = {value for step in steps for value in step.reads} | {*mutations.values()}
    values = list(graph.values)
    for value in given.values():
        values[value] = replace(values[value], memory_class=MemoryClass.IO)
    sources = {name: value for name, value in graph.sources.items() if value in read}
    return replace(
        graph,
        values=tuple(values),
        steps=steps,
        sources={**sources, **given},
        results=results,
        mutations=mutations,
    )


def buffer_spec(spec: TensorSpec, steps: int) -> TensorSpec:
    """Return the spec of a tensor that holds one of `spec` for each of `steps` iterations."""
    if spec.layout == PLAIN:
        return TensorSpec((steps, *spec.shape), spec.dtype)
    items = TensorSpec((1,), spec.dtype).nbytes
    return TensorSpec((steps, spec.nbytes // items), spec.dtype)
