"""Loops over the body of a recurrence: the tensors around a forward and a backward loop.

The values of a memory are the rows of a history: first its values before the first iteration, then
the one that each iteration makes. The gradient of a memory with offset 1 is one tensor that every
iteration of the backward loop overwrites; with a larger offset it has a history as well. The
gradient of a variable that all steps read is a running sum, from the last iteration to the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.recurrence.body import (
    BackwardRequestOfBody,
    DividedBody,
    buffer_spec,
    gradient_name,
    next_name,
    output_name,
    sum_name,
)
from mxrun.compiler.recurrence.tensors import LoopPlaces, SurroundingGraph, TensorRows
from mxrun.graph.graph import Graph, ValueId
from mxrun.graph.lower import RANDOM_STATE
from mxrun.graph.recurrence.operator import SEQUENCE_LENGTH, RecurrenceProperty, RecurrentMemory


@dataclass(frozen=True)
class Recurrence:
    """Recurrence with known shapes, or a segment of one.

    arguments: specs by name, the random state included. steps: number of iterations. inner: specs
    of one step's tensors, by the body's names of results.
    """

    prop: RecurrenceProperty
    arguments: Mapping[str, TensorSpec]
    steps: int
    inner: Mapping[str, TensorSpec]

    def in_time(self, value: ValueId, backward: bool = False) -> TensorRows:
        """Return the slices of a tensor over time, in the order of the iterations."""
        if self.prop.parameters.reverse != backward:
            return TensorRows(value, self.steps - 1, -1)
        return TensorRows(value, 0, 1)

    def in_order(self, value: ValueId, first: int, backward: bool = False) -> TensorRows:
        """Return the slices of a tensor whose rows are in the order of the forward iterations."""
        if backward:
            return TensorRows(value, self.steps - 1 + first, -1)
        return TensorRows(value, first, 1)

    def block(self, memory: RecurrentMemory) -> TensorSpec:
        """Return the spec of the values of a memory before the first step."""
        inner = self.inner[next_name(memory.name)]
        return inner if memory.offset == 1 else buffer_spec(inner, memory.offset)

    def history(self, memory: RecurrentMemory) -> TensorSpec:
        """Return the spec of all values of a memory."""
        return buffer_spec(self.inner[next_name(memory.name)], self.steps + memory.offset)

    @property
    def carried(self) -> frozenset[str]:
        """Memories of which one value suffices where backward reads none."""
        return frozenset(memory.name for memory in self.prop.memories if memory.offset == 1)

    def stacked(self, name: str) -> TensorSpec:
        """Return the spec of a stacked output."""
        return buffer_spec(self.inner[name], self.steps)


@dataclass(frozen=True)
class ReadTensors:
    """Tensors that the body reads at every iteration, by the names of its sources.

    in_time: those with a row for every time. in_order: those with a row for every iteration, in the
    order of these. others: those that are the same at all of them. limit: as in LoopPlaces.
    """

    in_time: Mapping[str, ValueId] = field(default_factory=dict)
    in_order: Mapping[str, ValueId] = field(default_factory=dict)
    others: Mapping[str, ValueId] = field(default_factory=dict)
    limit: ValueId | None = None

    def places(self, recurrence: Recurrence, body: Graph, backward: bool) -> LoopPlaces:
        """Return the places of these tensors in a loop over the body."""
        reads = {name: recurrence.in_time(value, backward) for name, value in self.in_time.items()}
        reads |= {
            name: recurrence.in_order(value, 0, backward) for name, value in self.in_order.items()
        }
        reads |= {name: TensorRows(value) for name, value in self.others.items()}
        own = {name: rows for name, rows in reads.items() if name in body.sources}
        return LoopPlaces(own, limit=self.limit, from_end=backward)


def read_arguments(
    graph: SurroundingGraph, recurrence: Recurrence, needed: Collection[str]
) -> ReadTensors:
    """Return the arguments as sources of the graph, the masks and the random states of the steps.

    needed: names of the sources of the body.
    """
    prop, arguments, steps = recurrence.prop, recurrence.arguments, recurrence.steps
    given = {
        name: graph.source(name, arguments[name])
        for name in (*prop.parameters.sequences, *prop.others)
        if name in needed
    }
    in_order: dict[str, ValueId] = {}
    if RANDOM_STATE in needed:
        state = graph.source(RANDOM_STATE, arguments[RANDOM_STATE])
        spec = TensorSpec((steps, *graph.spec(state).shape), "int64")
        in_order[RANDOM_STATE] = graph.apply(
            "_step_random", (state,), "step_random", spec, {"steps": steps}
        )
    limit = None
    if prop.parameters.use_sequence_length:
        lengths = graph.source(SEQUENCE_LENGTH, arguments[SEQUENCE_LENGTH])
        specs = (TensorSpec((steps, *graph.spec(lengths).shape)), TensorSpec((1,), "int64"))
        mask, limit = graph.outputs(
            "_valid_steps", (lengths,), "valid_steps", specs, {"steps": steps}
        )
        in_order |= dict.fromkeys(prop.parameters.valid, mask)
    sequences = {name: given.pop(name) for name in prop.parameters.sequences if name in given}
    return ReadTensors(sequences, in_order, given, limit)


@dataclass(frozen=True)
class MadeTensors:
    """Tensors that a forward loop makes: histories by memory, others by the body's results.

    last: last values of memories that have no history.
    """

    histories: Mapping[str, ValueId]
    others: Mapping[str, ValueId]
    last: Mapping[str, ValueId] = field(default_factory=dict)


def history_name(memory: str) -> str:
    """Return the name of a memory's history."""
    return f"{memory}:history"


def forward_loop(
    graph: SurroundingGraph,
    recurrence: Recurrence,
    body: Graph,
    read: ReadTensors,
    initial: Mapping[str, ValueId],
    kept: Mapping[str, TensorSpec],
    carried: Collection[str] = (),
) -> MadeTensors:
    """Append a forward loop.

    initial: values of memories before the first iteration; others begin with zeros. kept: specs of
    the body's results of which backward needs a row for every iteration. carried: memories without
    a history, whose next value overwrites the present one.
    """
    places = read.places(recurrence, body, backward=False)
    histories: dict[str, ValueId] = {}
    last: dict[str, ValueId] = {}
    for memory in recurrence.prop.memories:
        name, spec, block = memory.name, recurrence.history(memory), recurrence.block(memory)
        if name in carried:
            before = graph.started(f"{name}:initial", block, initial.get(name))
            last[name] = graph.value(f"{name}:last", block)
            _carry(places, last[name], before, name if name in body.sources else None)
            places.writes[next_name(name)] = TensorRows(last[name])
            continue
        before = graph.filled(f"{name}:initial", spec, 0, block, initial.get(name))
        after = histories[name] = graph.value(history_name(name), spec)
        places.overwritten[after] = before
        if name in body.sources:
            places.reads[name] = recurrence.in_order(before, 0)
        places.writes[next_name(name)] = recurrence.in_order(after, memory.offset)
    others: dict[str, ValueId] = {}
    for name in map(output_name, range(len(recurrence.prop.stacked))):
        if name in body.results:
            others[name] = graph.value(name, recurrence.stacked(name))
            places.writes[name] = recurrence.in_time(others[name])
    for name, spec in kept.items():
        if name not in places.writes:
            others[name] = graph.value(name, buffer_spec(spec, recurrence.steps))
            places.writes[name] = recurrence.in_order(others[name], 0)
    graph.loop("loop", recurrence.steps, body, places)
    return MadeTensors(histories, others, last)


def _carry(places: LoopPlaces, after: ValueId, before: ValueId, source: str | None) -> None:
    """Add the place of a tensor that every iteration overwrites; source: name by which it reads."""
    places.overwritten[after] = before
    if source is not None:
        places.reads[source] = TensorRows(before)


def last_values(
    graph: SurroundingGraph, recurrence: Recurrence, memory: RecurrentMemory, made: MadeTensors
) -> ValueId:
    """Return a memory's values after the last iteration."""
    if memory.name in made.last:
        return made.last[memory.name]
    history, block = made.histories[memory.name], recurrence.block(memory)
    return graph.part(f"{memory.name}:final", history, recurrence.steps, block)


@dataclass(frozen=True)
class GivenGradients:
    """Gradients with which a backward loop begins.

    stacked: gradients of stacked outputs by name. final: those of memories after the last step;
    others are zeros. sums: running sums of the gradients of variables.
    """

    stacked: Mapping[str, ValueId]
    final: Mapping[str, ValueId]
    sums: Mapping[str, ValueId]


@dataclass(frozen=True)
class MadeGradients:
    """Gradients after a backward loop: of sequences, of initial values, and running sums.

    initial: of all memories whose gradients pass on to earlier steps.
    """

    sequences: Mapping[str, ValueId]
    initial: Mapping[str, ValueId]
    sums: Mapping[str, ValueId]


def backward_loop(
    graph: SurroundingGraph,
    recurrence: Recurrence,
    divided: DividedBody,
    wanted: BackwardRequestOfBody,
    read: ReadTensors,
    made: MadeTensors,
    given: GivenGradients,
) -> MadeGradients:
    """Append a backward loop, from the last iteration to the first."""
    prop, body = recurrence.prop, divided.backward
    places = read.places(recurrence, body, backward=True)
    for memory in prop.memories:
        for name, first in ((memory.name, 0), (next_name(memory.name), memory.offset)):
            if name in body.sources:
                history = made.histories[memory.name]
                places.reads[name] = recurrence.in_order(history, first, backward=True)
    for name in map(output_name, range(len(prop.stacked))):
        if name in body.sources:
            places.reads[name] = recurrence.in_time(made.others[name], backward=True)
        if gradient_name(name) in body.sources:
            gradient = given.stacked[name]
            places.reads[gradient_name(name)] = recurrence.in_time(gradient, backward=True)
    for name in divided.kept:
        if name not in places.reads:
            places.reads[name] = recurrence.in_order(made.others[name], 0, backward=True)
    states = {
        memory.name: _memory_gradient(graph, recurrence, memory, body, places, given.final)
        for memory in prop.memories
        if memory.name in wanted.memories
    }
    sequences, sums = {}, {}
    for name in wanted.sequences:
        spec = recurrence.arguments[name]
        sequences[name] = graph.value(gradient_name(name), spec)
        places.writes[gradient_name(name)] = recurrence.in_time(sequences[name], backward=True)
    for name in wanted.others:
        before = given.sums[name]
        sums[name] = graph.value(gradient_name(name), graph.spec(before))
        places.overwritten[sums[name]] = before
        places.reads[sum_name(name)] = TensorRows(before)
        places.writes[sum_name(name)] = TensorRows(sums[name])
    if body.steps:
        graph.loop("backward", recurrence.steps, body, places)
    initial = {
        memory.name: states[memory.name]
        if memory.offset == 1
        else graph.part(f"{memory.name}:first", states[memory.name], 0, recurrence.block(memory))
        for memory in prop.memories
        if memory.name in states
    }
    return MadeGradients(sequences, initial, sums)


def _memory_gradient(
    graph: SurroundingGraph,
    recurrence: Recurrence,
    memory: RecurrentMemory,
    body: Graph,
    places: LoopPlaces,
    final: Mapping[str, ValueId],
) -> ValueId:
    """Add the places of a memory's gradient; return the tensor that holds it after the loop."""
    own, head = gradient_name(memory.name), gradient_name(next_name(memory.name))
    block, given = recurrence.block(memory), final.get(memory.name)
    if memory.offset == 1:
        before, after = graph.started(f"{own}:final", block, given), graph.value(own, block)
        _carry(places, after, before, head)
        places.writes[own] = TensorRows(after)
        return after
    spec = recurrence.history(memory)
    if places.limit is None:
        before = graph.filled(f"{own}:final", spec, recurrence.steps, block, given)
    else:
        # Rows of iterations that do not run are read by those that do.
        before = graph.zeros(f"{own}:final", spec)
    after = graph.value(own, spec)
    if head in body.sources:
        places.reads[head] = recurrence.in_order(before, memory.offset, backward=True)
    places.writes[own] = recurrence.in_order(after, 0, backward=True)
    places.overwritten[after] = before
    return after
