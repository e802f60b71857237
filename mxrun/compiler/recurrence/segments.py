"""Recurrences in segments: only the memories between segments are kept for backward.

Backward runs the iterations of a segment forward again, which keeps what backward reads of this
segment alone, and then backward. With segments of k of T iterations, the memory for activations is
in proportion to T / k + k. The kernels are those of a recurrence without segments, so the results
have the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.recurrence.body import (
    BackwardRequestOfBody,
    DividedBody,
    buffer_spec,
    gradient_name,
    output_name,
    sum_name,
)
from mxrun.compiler.recurrence.loops import (
    GivenGradients,
    MadeGradients,
    ReadTensors,
    Recurrence,
    backward_loop,
    forward_loop,
    last_values,
    read_arguments,
)
from mxrun.compiler.recurrence.steps import add_gradients, given_gradients, initial_values
from mxrun.compiler.recurrence.tensors import LoopPlaces, SurroundingGraph, TensorRows
from mxrun.graph.graph import Graph, StepKind, ValueId
from mxrun.graph.lower import RANDOM_STATE
from mxrun.graph.recurrence.operator import RecurrentMemory


@dataclass(frozen=True)
class SegmentRange:
    """Segments of `length` iterations each: `count` of them, from iteration `first` on.

    block: number of the first segment.
    """

    first: int
    length: int
    count: int
    block: int

    def rows(self, value: ValueId, steps: int, is_reversed: bool, backward: bool) -> TensorRows:
        """Return the slices of a tensor with a row for each of `steps` iterations.

        is_reversed: whether the rows are in the opposite order of the iterations.
        """
        first = steps - self.first - self.length if is_reversed else self.first
        step = -self.length if is_reversed else self.length
        if backward:
            return TensorRows(value, first + (self.count - 1) * step, -step)
        return TensorRows(value, first, step)

    def blocks(self, value: ValueId, after: int, backward: bool) -> TensorRows:
        """Return the slices of a tensor of blocks: the one before each segment, or `after`."""
        if backward:
            return TensorRows(value, self.block + self.count - 1 + after, -1)
        return TensorRows(value, self.block + after, 1)


def segment_ranges(steps: int, length: int) -> tuple[SegmentRange, ...]:
    """Return the segments of `length`, and a shorter one for the rest."""
    count, rest = divmod(steps, length)
    main = SegmentRange(first=0, length=length, count=count, block=0)
    return (
        (main, SegmentRange(first=count * length, length=rest, count=1, block=count))
        if rest
        else (main,)
    )


def blocks_name(memory: str) -> str:
    """Return the name of the values of a memory before each segment."""
    return f"{memory}:blocks"


@dataclass(frozen=True)
class SegmentedRecurrence:
    """Recurrence whose iterations run in segments of `length`."""

    whole: Recurrence
    divided: DividedBody
    length: int

    @property
    def ranges(self) -> tuple[SegmentRange, ...]:
        """Segments, in the order of the iterations."""
        return segment_ranges(self.whole.steps, self.length)

    def blocks(self, memory: RecurrentMemory) -> TensorSpec:
        """Return the spec of a memory's values before each segment, and after the last full one."""
        return buffer_spec(self.whole.block(memory), self.whole.steps // self.length + 1)

    def segment(self, length: int) -> Recurrence:
        """Return the recurrence of one segment."""
        whole = self.whole
        parts = {
            name: replace(whole.arguments[name], shape=(length, *whole.arguments[name].shape[1:]))
            for name in whole.prop.parameters.sequences
        }
        return replace(whole, steps=length, arguments={**whole.arguments, **parts})

    def read_segment(self, graph: SurroundingGraph, length: int, body: Graph) -> ReadTensors:
        """Return what the body of a segment reads, as sources of the segment's graph."""
        part, given = self.segment(length), self.whole.prop.parameters
        masks = [name for name in given.valid if name in body.sources]
        in_time, in_order, others = {}, {}, {}
        for name in given.sequences:
            if name in body.sources:
                in_time[name] = graph.source(name, part.arguments[name])
        for name in (*masks, RANDOM_STATE):
            if name in body.sources:
                inner = body.spec(body.sources[name])
                in_order[name] = graph.source(name, buffer_spec(inner, length))
        for name in self.whole.prop.others:
            if name in body.sources:
                others[name] = graph.source(name, part.arguments[name])
        return ReadTensors(in_time, in_order, others)

    def read_places(
        self, read: ReadTensors, body: Graph, segments: SegmentRange, backward: bool
    ) -> LoopPlaces:
        """Return the places of what the segments read."""
        steps, is_reversed = self.whole.steps, self.whole.prop.parameters.reverse
        reads = {
            name: segments.rows(value, steps, is_reversed, backward)
            for name, value in read.in_time.items()
        }
        reads |= {
            name: segments.rows(value, steps, False, backward)
            for name, value in read.in_order.items()
        }
        reads |= {name: TensorRows(value) for name, value in read.others.items()}
        return LoopPlaces({name: rows for name, rows in reads.items() if name in body.sources})


def segmented_forward_graph(recurrence: SegmentedRecurrence, keeps: bool, is_train: bool) -> Graph:
    """Return the graph of the forward step, as `forward_graph` does.

    What it keeps is the values of memories before each segment.
    """
    whole = recurrence.whole
    graph = SurroundingGraph(is_train, StepKind.FORWARD)
    read = read_arguments(graph, whole, recurrence.divided.plain.sources)
    initial, blocks = initial_values(graph, whole), {}
    for memory in whole.prop.memories:
        name, spec = memory.name, recurrence.blocks(memory)
        block = whole.block(memory)
        blocks[name] = graph.filled(f"{name}:initial", spec, 0, block, initial.get(name))
    stacked: dict[str, ValueId] = {}
    final: dict[str, ValueId] = {}
    for segments in recurrence.ranges:
        body = _forward_segment(recurrence, segments.length, is_train)
        places = recurrence.read_places(read, body, segments, backward=False)
        is_rest = segments.block > 0
        for memory in whole.prop.memories:
            name = memory.name
            places.reads[name] = segments.blocks(blocks[name], 0, backward=False)
            if is_rest:
                final[name] = graph.value(f"{name}:final", whole.block(memory))
                places.writes[name] = TensorRows(final[name])
            else:
                after = graph.value(blocks_name(name), recurrence.blocks(memory))
                places.overwritten[after] = blocks[name]
                places.writes[name] = segments.blocks(after, 1, backward=False)
                blocks[name] = after
        _write_rows(graph, recurrence, segments, places, body, stacked, backward=False)
        graph.loop(f"segments{segments.block}", segments.count, body, places)
    results = dict(stacked)
    if keeps:
        results |= {blocks_name(name): value for name, value in blocks.items()}
    for memory in (memory for memory in whole.prop.memories if memory.is_final):
        name, last = memory.name, whole.steps // recurrence.length
        block = whole.block(memory)
        results[name] = final.get(name) or graph.part(f"{name}:final", blocks[name], last, block)
    graph.builder.results.update(results)
    return graph.builder.build()


def _write_rows(
    graph: SurroundingGraph,
    recurrence: SegmentedRecurrence,
    segments: SegmentRange,
    places: LoopPlaces,
    body: Graph,
    made: dict[str, ValueId],
    backward: bool,
) -> None:
    """Add the places of results with a row for every time; `made` has those written before."""
    whole, given = recurrence.whole, recurrence.whole.prop.parameters
    specs = {
        name: whole.stacked(name)
        for name in map(output_name, range(len(whole.prop.stacked)))
        if name in body.results
    }
    specs |= {
        gradient_name(name): whole.arguments[name]
        for name in given.sequences
        if gradient_name(name) in body.results
    }
    for name, spec in specs.items():
        after = graph.value(name, spec)
        if name in made:
            places.overwritten[after] = made[name]
        made[name] = after
        places.writes[name] = segments.rows(after, whole.steps, given.reverse, backward)


def _forward_segment(recurrence: SegmentedRecurrence, length: int, is_train: bool) -> Graph:
    """Return the graph of a segment: from memories before it to outputs and memories after it."""
    graph, part = SurroundingGraph(is_train, StepKind.FORWARD), recurrence.segment(length)
    body = recurrence.divided.plain
    read = recurrence.read_segment(graph, length, body)
    initial = {
        memory.name: graph.source(memory.name, part.block(memory)) for memory in part.prop.memories
    }
    made = forward_loop(graph, part, body, read, initial, {})
    graph.builder.results.update(made.others)
    for memory in part.prop.memories:
        graph.builder.results[memory.name] = last_values(graph, part, memory, made)
    return graph.builder.build()


def segmented_backward_graph(
    recurrence: SegmentedRecurrence,
    wanted: BackwardRequestOfBody,
    given: Collection[str],
    requested: Mapping[str, TensorSpec],
    is_train: bool,
) -> Graph:
    """Return the graph of the backward step, as `backward_graph` does."""
    whole, divided = recurrence.whole, recurrence.divided
    graph = SurroundingGraph(is_train, StepKind.BACKWARD)
    needed = {*divided.forward.sources, *divided.backward.sources}
    read = read_arguments(graph, whole, needed)
    blocks = {
        memory.name: graph.source(blocks_name(memory.name), recurrence.blocks(memory))
        for memory in whole.prop.memories
    }
    gradients = given_gradients(graph, whole, wanted, given)
    state = _Gradients(recurrence, wanted, graph, gradients)
    for segments in reversed(recurrence.ranges):
        body = _backward_segment(recurrence, wanted, gradients.stacked, segments.length, is_train)
        places = recurrence.read_places(read, body, segments, backward=True)
        for name, value in blocks.items():
            if name in body.sources:
                places.reads[name] = segments.blocks(value, 0, backward=True)
        for name, value in gradients.stacked.items():
            is_reversed = whole.prop.parameters.reverse
            rows = segments.rows(value, whole.steps, is_reversed, backward=True)
            places.reads[gradient_name(name)] = rows
        state.add(segments, places)
        _write_rows(graph, recurrence, segments, places, body, state.sequences, backward=True)
        graph.loop(f"segments{segments.block}", segments.count, body, places)
    add_gradients(graph, state.made(), requested)
    return graph.builder.build()


class _Gradients:
    """Gradients of memories between segments, and running sums, while segments are added."""

    def __init__(
        self,
        recurrence: SegmentedRecurrence,
        wanted: BackwardRequestOfBody,
        graph: SurroundingGraph,
        given: GivenGradients,
    ) -> None:
        self._recurrence, self._graph = recurrence, graph
        whole = recurrence.whole
        memories = [each for each in whole.prop.memories if each.name in wanted.memories]
        self._memories = memories
        self._sums = dict(given.sums)
        self.sequences: dict[str, ValueId] = {}
        self._last: dict[str, ValueId] = {}
        self._blocks: dict[str, ValueId] = {}
        for memory in memories:
            name, block, final = memory.name, whole.block(memory), given.final.get(memory.name)
            if len(recurrence.ranges) > 1:
                zeros = f"{name}:gradient_zero"
                self._last[name] = graph.zeros(zeros, block) if final is None else final
            else:
                spec, row = recurrence.blocks(memory), recurrence.ranges[0].count
                filled = graph.filled(f"{name}:gradient_final", spec, row, block, final)
                self._blocks[name] = filled

    def add(self, segments: SegmentRange, places: LoopPlaces) -> None:
        """Add the places of one loop over segments."""
        graph = self._graph
        for memory in self._memories:
            own = gradient_name(memory.name)
            after = graph.value(own, self._recurrence.blocks(memory))
            before = self._blocks.get(memory.name)
            if before is None:
                places.reads[own] = TensorRows(self._last[memory.name])
            else:
                places.overwritten[after] = before
                places.reads[own] = segments.blocks(before, 1, backward=True)
            places.writes[own] = segments.blocks(after, 0, backward=True)
            self._blocks[memory.name] = after
        for name, before in self._sums.items():
            after = graph.value(sum_name(name), graph.spec(before))
            places.overwritten[after] = before
            places.reads[sum_name(name)] = TensorRows(before)
            places.writes[sum_name(name)] = TensorRows(after)
            self._sums[name] = after

    def made(self) -> MadeGradients:
        """Return the gradients after all segments."""
        names = self._recurrence.whole.prop.parameters.sequences
        sequences = {
            name: self.sequences[gradient_name(name)]
            for name in names
            if gradient_name(name) in self.sequences
        }
        initial = {
            memory.name: self._graph.part(
                f"{memory.name}:first",
                self._blocks[memory.name],
                0,
                self._recurrence.whole.block(memory),
            )
            for memory in self._memories
        }
        return MadeGradients(sequences, initial, self._sums)


def _backward_segment(
    recurrence: SegmentedRecurrence,
    wanted: BackwardRequestOfBody,
    stacked: Collection[str],
    length: int,
    is_train: bool,
) -> Graph:
    """Return the graph of a segment that runs forward again and then backward.

    stacked: names of the outputs whose gradients are given.
    """
    graph, part = SurroundingGraph(is_train, StepKind.BACKWARD), recurrence.segment(length)
    divided, memories = recurrence.divided, part.prop.memories
    read = recurrence.read_segment(graph, length, divided.forward)
    also = recurrence.read_segment(graph, length, divided.backward)
    initial = {memory.name: graph.source(memory.name, part.block(memory)) for memory in memories}
    again = forward_loop(graph, part, divided.forward, read, initial, divided.kept)
    given = GivenGradients(
        {name: graph.source(gradient_name(name), part.stacked(name)) for name in stacked},
        {
            memory.name: graph.source(gradient_name(memory.name), part.block(memory))
            for memory in memories
            if memory.name in wanted.memories
        },
        {name: graph.source(sum_name(name), part.arguments[name]) for name in wanted.others},
    )
    made = backward_loop(graph, part, divided, wanted, also, again, given)
    results = {gradient_name(name): value for name, value in made.sequences.items()}
    results |= {gradient_name(name): value for name, value in made.initial.items()}
    results |= {sum_name(name): value for name, value in made.sums.items()}
    graph.builder.results.update(results)
    return graph.builder.build()
