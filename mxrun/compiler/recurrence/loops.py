"""Loops over the body of a recurrence: the graphs of a forward and of a backward step.

The values of a memory are the rows of a history: first its values before the first iteration, then
the one that each iteration makes. The gradient of a memory with offset 1 is one tensor that every
iteration of the backward loop overwrites; with a larger offset it has a history as well. The
gradient of a variable that all steps read is a running sum, from the last iteration to the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
from mxrun.graph.graph import Graph, StepKind, ValueId
from mxrun.graph.lower import RANDOM_STATE
from mxrun.graph.recurrence.operator import SEQUENCE_LENGTH, RecurrenceProperty, RecurrentMemory

_STEP_RANDOM = "_step_random"


@dataclass(frozen=True)
class Recurrence:
    """Recurrence with known shapes.

    arguments: specs by name, the random state included. steps: T. inner: specs of one step's
    tensors, by the body's names of sources and results.
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
        inner = self.inner[next_name(memory.name)]
        return buffer_spec(inner, self.steps + memory.offset)


def history_name(memory: str) -> str:
    """Return the name of a memory's history."""
    return f"{memory}:history"


def forward_graph(
    recurrence: Recurrence,
    body: Graph,
    kept: Mapping[str, TensorSpec],
    histories: bool,
    is_train: bool,
) -> Graph:
    """Return the graph of a recurrence's forward step.

    Its sources are the arguments; its results the requested outputs by `output_name`, the final
    memories by name, and what backward reads: the histories if there are any, and `kept`.
    """
    prop, steps = recurrence.prop, recurrence.steps
    graph, places = SurroundingGraph(is_train, StepKind.FORWARD), LoopPlaces()
    after: dict[str, ValueId] = {}
    for memory in prop.memories:
        name, spec, block = memory.name, recurrence.history(memory), recurrence.block(memory)
        given = graph.source(name, block) if memory.has_initial else None
        before = graph.filled(f"{name}:initial", spec, 0, block, given)
        after[name] = graph.value(history_name(name), spec)
        places.overwritten[after[name]] = before
        if name in body.sources:
            places.reads[name] = recurrence.in_order(before, 0)
        places.writes[next_name(name)] = recurrence.in_order(after[name], memory.offset)
    _read_arguments(recurrence, body, graph, places, backward=False)
    stacked = [output_name(index) for index in range(len(prop.stacked))]
    for name in (name for name in stacked if name in body.results):
        value = graph.value(name, buffer_spec(recurrence.inner[name], steps))
        places.writes[name] = recurrence.in_time(value)
    for name, spec in kept.items():
        if name not in places.writes:
            value = graph.value(name, buffer_spec(spec, steps))
            places.writes[name] = recurrence.in_order(value, 0)
    graph.loop("loop", steps, body, places)
    results = {
        name: rows.value for name, rows in places.writes.items() if name in (*stacked, *kept)
    }
    results = {name: value for name, value in results.items() if value not in after.values()}
    if histories:
        results |= {history_name(name): value for name, value in after.items()}
    for memory in (memory for memory in prop.memories if memory.is_final):
        block = recurrence.block(memory)
        results[memory.name] = graph.part(f"{memory.name}:final", after[memory.name], steps, block)
    graph.builder.results.update(results)
    return graph.builder.build()


def _read_arguments(
    recurrence: Recurrence,
    body: Graph,
    graph: SurroundingGraph,
    places: LoopPlaces,
    backward: bool,
) -> None:
    """Add the places of sequences, other variables and random numbers that the body reads."""
    prop = recurrence.prop
    for name in prop.parameters.sequences:
        if name in body.sources:
            value = graph.source(name, recurrence.arguments[name])
            places.reads[name] = recurrence.in_time(value, backward)
    for name in prop.others:
        if name in body.sources:
            places.reads[name] = TensorRows(graph.source(name, recurrence.arguments[name]))
    if RANDOM_STATE in body.sources:
        state = graph.source(RANDOM_STATE, recurrence.arguments[RANDOM_STATE])
        spec = TensorSpec((recurrence.steps, *graph.spec(state).shape), "int64")
        parameters = {"steps": recurrence.steps}
        keys = graph.apply(_STEP_RANDOM, (state,), "step_random", spec, parameters)
        places.reads[RANDOM_STATE] = recurrence.in_order(keys, 0, backward)
    if prop.parameters.use_sequence_length:
        _read_lengths(recurrence, body, graph, places, backward)


def _read_lengths(
    recurrence: Recurrence,
    body: Graph,
    graph: SurroundingGraph,
    places: LoopPlaces,
    backward: bool,
) -> None:
    """Add the mask of valid steps if the body reads it, and limit the iterations."""
    spec, steps = recurrence.arguments[SEQUENCE_LENGTH], recurrence.steps
    specs = (TensorSpec((steps, *spec.shape)), TensorSpec((1,), "int64"))
    lengths = graph.source(SEQUENCE_LENGTH, spec)
    mask, count = graph.outputs("_valid_steps", (lengths,), "valid_steps", specs, {"steps": steps})
    for name in recurrence.prop.parameters.valid:
        if name in body.sources:
            places.reads[name] = recurrence.in_order(mask, 0, backward)
    places.limit, places.from_end = count, backward


def backward_graph(
    recurrence: Recurrence,
    divided: DividedBody,
    wanted: BackwardRequestOfBody,
    given: Mapping[str, TensorSpec],
    requested: Mapping[str, TensorSpec],
    is_train: bool,
) -> Graph:
    """Return the graph of a recurrence's backward step.

    given: specs of the outputs' gradients that exist, by the names of forward's results. Its
    sources are the arguments, what forward hands on, and these gradients by `gradient_name`; its
    results the requested gradients, by the names of the arguments.
    """
    prop, body = recurrence.prop, divided.backward
    graph, places = SurroundingGraph(is_train, StepKind.BACKWARD), LoopPlaces()
    _read_arguments(recurrence, body, graph, places, backward=True)
    for memory in prop.memories:
        history = recurrence.history(memory)
        for name, first in ((memory.name, 0), (next_name(memory.name), memory.offset)):
            if name in body.sources:
                value = graph.source(history_name(memory.name), history)
                places.reads[name] = recurrence.in_order(value, first, backward=True)
    for index in range(len(prop.stacked)):
        name = output_name(index)
        for source, of_output in ((name, True), (gradient_name(name), False)):
            if source in body.sources:
                spec = buffer_spec(recurrence.inner[name], recurrence.steps)
                value = graph.source(source, spec if of_output else given[name])
                places.reads[source] = recurrence.in_time(value, backward=True)
    for name, spec in divided.kept.items():
        if name not in places.reads:
            value = graph.source(name, buffer_spec(spec, recurrence.steps))
            places.reads[name] = recurrence.in_order(value, 0, backward=True)
    states = {
        memory.name: _memory_gradient(recurrence, memory, graph, body, places, given)
        for memory in prop.memories
        if memory.name in wanted.memories
    }
    made: dict[str, ValueId] = {}
    for name in wanted.sequences:
        made[name] = graph.value(gradient_name(name), recurrence.arguments[name])
        places.writes[gradient_name(name)] = recurrence.in_time(made[name], backward=True)
    for name in wanted.others:
        before = graph.zeros(f"{name}:zero", recurrence.arguments[name])
        made[name] = graph.value(gradient_name(name), recurrence.arguments[name])
        places.overwritten[made[name]] = before
        places.reads[sum_name(name)] = TensorRows(before)
        places.writes[sum_name(name)] = TensorRows(made[name])
    if body.steps:
        graph.loop("loop", recurrence.steps, body, places)
    for memory in (memory for memory in prop.memories if memory.name in requested):
        if memory.name in states:
            after = states[memory.name]
            made[memory.name] = (
                after
                if memory.offset == 1
                else graph.part(f"{memory.name}:gradient_part", after, 0, recurrence.block(memory))
            )
    for name, spec in requested.items():
        if name not in made:
            made[name] = graph.zeros(gradient_name(name), spec)
    graph.builder.results.update({name: made[name] for name in requested})
    return graph.builder.build()


def _memory_gradient(
    recurrence: Recurrence,
    memory: RecurrentMemory,
    graph: SurroundingGraph,
    body: Graph,
    places: LoopPlaces,
    given: Mapping[str, TensorSpec],
) -> ValueId:
    """Add the places of a memory's gradient; return the tensor that holds it after the loop."""
    own, head = gradient_name(memory.name), gradient_name(next_name(memory.name))
    block, final = recurrence.block(memory), None
    if memory.name in given:
        final = graph.source(gradient_name(f"{memory.name}:final"), block)
    if memory.offset == 1:
        before = (
            graph.zeros(f"{own}:zero", block)
            if final is None
            else graph.apply("_copy", (final,), f"{own}:final", block)
        )
        after = graph.value(own, block)
        places.reads[head], places.writes[own] = TensorRows(before), TensorRows(after)
    else:
        spec = recurrence.history(memory)
        before = graph.filled(f"{own}:final", spec, recurrence.steps, block, final)
        after = graph.value(own, spec)
        places.reads[head] = recurrence.in_order(before, memory.offset, backward=True)
        places.writes[own] = recurrence.in_order(after, 0, backward=True)
    places.overwritten[after] = before
    return after
