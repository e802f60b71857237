"""Planning of loops: the body of a loop is scheduled and placed once, as the kernel of one step.

The body's own tensors are in the step's workspace, and memory is reused within an iteration by
their own lifetimes. The enclosing plan sees a step with a workspace of that size. In the plan of a
body the pinned region stands for the tensors of the enclosing graph, one block for each source.

Steps and values of a body are named `LOOP/NAME`, so that their names are unique in the entire plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from mxrun.base import flags
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.compiler.loop_invariants import hoist_invariants
from mxrun.compiler.verify import verify_graph
from mxrun.graph.graph import Graph, GraphLoop, MemoryClass, Slice, Step, ValueId
from mxrun.operator.kernel import Handles
from mxrun.operator.launch import Handle, Launch, Repeat
from mxrun.planner.place import place_pinned
from mxrun.planner.plan import Block, LoopKernel, PhasePlan

# Prepares the kernels of a body, loops within it included.
Select = Callable[[Graph], Graph]
# Schedules and places a body with kernels, beside a pinned region.
Place = Callable[[Graph, tuple[Block, ...]], PhasePlan]


def with_loops(graph: Graph, select: Select, place: Place) -> Graph:
    """Return the graph with the kernel of every loop.

    Raises InternalError for a loop whose slices leave their tensors, have other dtypes than these,
    or overlap within an iteration, and for a result that has no place of its own.
    """
    steps = tuple(
        step if step.loop is None else replace(step, loop=_selected(step.name, step.loop, select))
        for step in graph.steps
    )
    graph = hoist_invariants(replace(graph, steps=steps))
    memory = graph.roots()
    steps = tuple(
        step if step.loop is None else replace(step, kernel=_kernel(step, step.loop, memory, place))
        for step in graph.steps
    )
    return replace(graph, steps=steps)


def _selected(name: str, loop: GraphLoop, select: Select) -> GraphLoop:
    """Return a loop whose body has kernels."""
    # Selection changes the dtypes of values, so everything else is checked after it.
    if any(each.kernel is None for each in loop.body.steps):
        return replace(loop, body=select(_within(name, loop.body)))
    return loop


def _kernel(step: Step, loop: GraphLoop, memory: Sequence[ValueId], place: Place) -> LoopKernel:
    """Return the kernel that runs a loop."""
    if loop.count < 1:
        raise InternalError(f"{step.name}: a loop runs at least once, not {loop.count} times")
    if (len(step.reads), len(step.writes)) != (len(loop.inputs), len(loop.outputs)):
        raise InternalError(f"{step.name}: a tensor of the loop is absent")
    tensors = _Tensors.of(step, memory)
    in_place = _check(step.name, loop, tensors)
    graph, places = _with_slots(loop, in_place)
    pinned = place_pinned([graph])
    body = place(graph, pinned)
    if flags.debug():
        verify_graph(body.graph, f"the planning of {step.name}")
    kernels = [each.kernel for each in body.steps if each.kernel is not None]
    return LoopKernel(
        implementation="loop",
        inputs=loop.inputs,
        outputs=loop.outputs,
        bind=_Binding(step.name, loop, body, pinned, places, tensors.shared()).launches,
        workspace_bytes=body.reusable_bytes,
        flops=loop.count * sum(kernel.flops for kernel in kernels),
        bytes_moved=loop.count * sum(kernel.bytes_moved for kernel in kernels),
        body=body,
    )


def _within(loop: str, body: Graph) -> Graph:
    """Return the body with names that begin with the loop's."""

    def named(name: str) -> str:
        return f"{loop}/{name}"

    steps = tuple(
        replace(
            step,
            name=named(step.name),
            forward=None if step.forward is None else named(step.forward),
            repeats=None if step.repeats is None else named(step.repeats),
        )
        for step in body.steps
    )
    values = tuple(replace(value, name=named(value.name)) for value in body.values)
    return replace(body, values=values, steps=steps)


@dataclass(frozen=True)
class _Tensors:
    """Memory of a loop's inputs and outputs: the first value of the enclosing graph in each."""

    inputs: tuple[ValueId, ...]
    outputs: tuple[ValueId, ...]

    @classmethod
    def of(cls, step: Step, memory: Sequence[ValueId]) -> _Tensors:
        inputs = tuple(memory[value] for value in step.reads)
        return cls(inputs, tuple(memory[value] for value in step.writes))

    def shared(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs (input, output) that are in the same memory."""
        return tuple(
            (number, other)
            for number, given in enumerate(self.inputs)
            for other, made in enumerate(self.outputs)
            if given == made
        )


@dataclass(frozen=True)
class _Range:
    """Bytes that an iteration reads or writes; `memory` is as in `_Tensors`."""

    memory: ValueId
    slice: Slice
    nbytes: int

    def is_same(self, other: _Range) -> bool:
        """Return whether both are the same bytes in every iteration."""
        own, its = replace(self.slice, tensor=0), replace(other.slice, tensor=0)
        return (self.memory, own, self.nbytes) == (other.memory, its, other.nbytes)

    def overlaps(self, other: _Range, count: int) -> bool:
        """Return whether the two overlap in one of `count` iterations."""
        gap = other.slice.begin - self.slice.begin
        widening = other.slice.stride - self.slice.stride
        return self.memory == other.memory and any(
            -other.nbytes < gap + iteration * widening < self.nbytes for iteration in range(count)
        )


def _check(name: str, loop: GraphLoop, tensors: _Tensors) -> dict[str, str]:
    """Check the places of a body's tensors; return what `_in_place` returns."""
    for given, made in tensors.shared():
        if loop.inputs[given].nbytes != loop.outputs[made].nbytes:
            raise InternalError(f"{name}: the output {made} overwrites a tensor of another size")
    body = loop.body
    if missing := body.sources.keys() - loop.reads.keys():
        raise InternalError(f"{name}: nothing gives the body {min(missing)!r}")
    reads = dict(_ranges(name, loop, body.sources, loop.reads, loop.inputs, tensors.inputs))
    writes = dict(_ranges(name, loop, body.results, loop.writes, loop.outputs, tensors.outputs))
    in_place = _in_place(name, loop)
    for result, write in writes.items():
        for source, read in reads.items():
            if in_place.get(result) == source:
                if not write.is_same(read):
                    raise InternalError(
                        f"{name}: {result!r} overwrites {source!r} in the body, but not outside"
                    )
            elif write.overlaps(read, loop.count):
                raise InternalError(f"{name}: {result!r} is written where {source!r} is read")
    for first, second in itertools.combinations(writes, 2):
        if writes[first].overlaps(writes[second], loop.count):
            raise InternalError(f"{name}: {first!r} is written where {second!r} is")
    return in_place


def _ranges(
    name: str,
    loop: GraphLoop,
    values: Mapping[str, ValueId],
    slices: Mapping[str, Slice],
    tensors: Sequence[TensorSpec],
    memory: Sequence[ValueId],
) -> Iterator[tuple[str, _Range]]:
    """Yield the range of each slice; raises InternalError for one that does not fit its tensor."""
    if unknown := slices.keys() - values.keys():
        raise InternalError(f"{name}: the body has no {min(unknown)!r}")
    for key, each in slices.items():
        spec, tensor = loop.body.spec(values[key]), tensors[each.tensor]
        if spec.dtype != tensor.dtype:
            raise InternalError(
                f"{name}: {key!r} is {spec.dtype}, but the tensor {each.tensor} is {tensor.dtype}"
            )
        if tensor.layout != PLAIN and tensor != spec:
            raise InternalError(f"{name}: {key!r} is a part of a tensor in another layout")
        last = each.begin + (loop.count - 1) * each.stride
        if min(each.begin, last) < 0 or max(each.begin, last) + spec.nbytes > tensor.nbytes:
            raise InternalError(f"{name}: {key!r} leaves the tensor {each.tensor}")
        yield key, _Range(memory[each.tensor], each, spec.nbytes)


def _in_place(name: str, loop: GraphLoop) -> dict[str, str]:
    """Return {result: source} of the results that the body writes to the memory of a source.

    Raises InternalError if the body overwrites a source that has no such result.
    """
    body, memory = loop.body, loop.body.roots()
    sources = {value: source for source, value in body.sources.items()}
    written = {result: memory[body.results[result]] for result in loop.writes}
    for root in (memory[value] for value in body.mutations):
        if root in sources and root not in written.values():
            raise InternalError(
                f"{name}: the body overwrites {sources[root]!r}, which is no result"
            )
    return {result: sources[root] for result, root in written.items() if root in sources}


@dataclass(frozen=True)
class _Place:
    """Place of a body's source or result in the enclosing graph."""

    is_output: bool
    slice: Slice


def _with_slots(loop: GraphLoop, in_place: Collection[str]) -> tuple[Graph, dict[str, _Place]]:
    """Return the body whose results overwrite sources, and the place of each source.

    A result that is not `in_place` overwrites a source of its own. Raises InternalError for one
    that shares its memory with another.
    """
    body, memory = loop.body, loop.body.roots()
    values, sources = list(body.values), dict(body.sources)
    mutations = dict(body.mutations)
    places = {name: _Place(False, each) for name, each in loop.reads.items()}
    for name, each in loop.writes.items():
        if name in in_place:
            continue
        root = memory[body.results[name]]
        if root in mutations:
            raise InternalError(f"the result {name!r} of a loop has no place of its own")
        slot = f"{name}:slot"
        mutations[root] = sources[slot] = len(values)
        values.append(replace(body.values[root], name=slot, memory_class=MemoryClass.IO))
        places[slot] = _Place(True, each)
    changed = replace(body, values=tuple(values), sources=sources, mutations=mutations)
    return changed, places


@dataclass(frozen=True)
class _Binding:
    """Binding of a planned body to the handles of its step.

    shared: pairs (input, output) that the plan of the body takes to be in the same memory.
    """

    name: str
    loop: GraphLoop
    body: PhasePlan
    pinned: tuple[Block, ...]
    places: Mapping[str, _Place]
    shared: tuple[tuple[int, int], ...]

    def launches(self, handles: Handles) -> tuple[Launch, ...]:
        """Return one `Repeat` of the body's launches, or these alone for one iteration.

        Raises InternalError if an output is not in the memory of the input that it overwrites.
        """
        for number, other in self.shared:
            given, made = handles.inputs[number], handles.outputs[other]
            if given is None or made is None or not given.is_at(made):
                raise InternalError(
                    f"{self.name}: the output {other} overwrites the input {number}, which is a "
                    "copy in another layout or dtype"
                )
        program: list[Launch] = []
        for step in self.body.steps:
            assert step.kernel is not None
            program += step.kernel.bind(self.body.handles(step, partial(self._place, handles)))
        if not self._repeats:
            return tuple(program)
        loop = self.loop
        limit = None if loop.limit is None else handles.inputs[loop.limit]
        return (Repeat(loop.count, tuple(program), limit, loop.from_end),)

    @property
    def _repeats(self) -> bool:
        return self.loop.count > 1 or self.loop.limit is not None

    def _place(self, outside: Handles, offset: int) -> Handle:
        """Return the handle of an offset in the body's plan."""
        for block in self.pinned:
            if block.offset <= offset < block.end:
                place = self.places[block.name]
                group = outside.outputs if place.is_output else outside.inputs
                handle = group[place.slice.tensor]
                assert handle is not None
                within = handle + (place.slice.begin + offset - block.offset)
                return within.within(place.slice.stride) if self._repeats else within
        assert outside.workspace is not None
        within = outside.workspace + (offset - self._pinned_bytes)
        return within.within(0) if self._repeats else within

    @property
    def _pinned_bytes(self) -> int:
        return sum(block.nbytes for block in self.pinned)
