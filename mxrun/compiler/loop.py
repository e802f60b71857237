"""Planning of loops: the body of a loop is scheduled and placed once, as the kernel of one step.

The body's own tensors lie in the step's workspace and are reused within an iteration by their own
lifetimes. The enclosing plan sees a step with a workspace of that size. In the plan of a body the
pinned region stands for the tensors of the enclosing graph, one block for each source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from mxrun.base.errors import InternalError
from mxrun.base.tensor import PLAIN, align
from mxrun.graph.graph import Graph, GraphLoop, MemoryClass, Slice
from mxrun.operator.kernel import Handles, Kernel
from mxrun.operator.launch import Handle, Launch, Repeat
from mxrun.planner.place import place_pinned
from mxrun.planner.plan import Block, PhasePlan

# Prepares the kernels of a body, loops within it included.
Select = Callable[[Graph], Graph]
# Schedules and places a body with kernels, beside a pinned region.
Place = Callable[[Graph, tuple[Block, ...]], PhasePlan]


def with_loops(graph: Graph, select: Select, place: Place) -> Graph:
    """Return the graph with the kernel of every loop.

    Raises InternalError for a loop whose slices leave their tensors, or with a result that has no
    place of its own.
    """
    steps = tuple(
        step
        if step.loop is None
        else replace(step, kernel=_kernel(step.name, step.loop, select, place))
        for step in graph.steps
    )
    return replace(graph, steps=steps)


def _kernel(name: str, loop: GraphLoop, select: Select, place: Place) -> Kernel:
    """Return the kernel that runs a loop."""
    _check(loop, name)
    graph, places = _with_slots(replace(loop, body=select(loop.body)))
    pinned = place_pinned([graph])
    body = place(graph, pinned)
    kernels = [each.kernel for each in body.steps if each.kernel is not None]
    return Kernel(
        implementation="loop",
        inputs=loop.inputs,
        outputs=loop.outputs,
        bind=_Binding(loop.count, body, pinned, places).launches,
        workspace_bytes=align(body.reusable_bytes),
        flops=loop.count * sum(kernel.flops for kernel in kernels),
        bytes_moved=loop.count * sum(kernel.bytes_moved for kernel in kernels),
    )


@dataclass(frozen=True)
class _Place:
    """Place of a body's source or result in the enclosing graph."""

    is_output: bool
    slice: Slice


def _check(loop: GraphLoop, name: str) -> None:
    specs = (*loop.inputs, *loop.outputs)
    if any(spec.layout != PLAIN for spec in specs):
        raise InternalError(f"{name}: the tensors around a loop have the plain layout")
    sources, results = loop.body.sources, loop.body.results
    groups = ((sources, loop.reads, loop.inputs), (results, loop.writes, loop.outputs))
    for values, slices, tensors in groups:
        if unknown := slices.keys() - values.keys():
            raise InternalError(f"{name}: the body has no {min(unknown)!r}")
        for key, each in slices.items():
            last = each.begin + (loop.count - 1) * each.stride
            end = max(each.begin, last) + loop.body.spec(values[key]).nbytes
            if min(each.begin, last) < 0 or end > tensors[each.tensor].nbytes:
                raise InternalError(f"{name}: {key!r} leaves the tensor {each.tensor}")
    if missing := sources.keys() - loop.reads.keys():
        raise InternalError(f"{name}: nothing gives the body {min(missing)!r}")


def _with_slots(loop: GraphLoop) -> tuple[Graph, dict[str, _Place]]:
    """Return the body whose results overwrite sources of their own, and the place of each source.

    Raises InternalError for a result that is a source, a view or another result.
    """
    body, producer = loop.body, loop.body.producer()
    values, sources = list(body.values), dict(body.sources)
    mutations = dict(body.mutations)
    places = {name: _Place(False, each) for name, each in loop.reads.items()}
    for name, each in loop.writes.items():
        result = body.results[name]
        step = producer.get(result)
        is_view = step is None or step.kernel is None or step.kernel.is_view
        if is_view or result in mutations:
            raise InternalError(f"the result {name!r} of a loop has no place of its own")
        slot = f"{name}:slot"
        mutations[result] = sources[slot] = len(values)
        values.append(replace(body.values[result], name=slot, memory_class=MemoryClass.IO))
        places[slot] = _Place(True, each)
    changed = replace(body, values=tuple(values), sources=sources, mutations=mutations)
    return changed, places


@dataclass(frozen=True)
class _Binding:
    """Binding of a planned body to the handles of its step."""

    count: int
    body: PhasePlan
    pinned: tuple[Block, ...]
    places: Mapping[str, _Place]

    def launches(self, handles: Handles) -> tuple[Launch, ...]:
        """Return one `Repeat` of the body's launches."""
        program: list[Launch] = []
        for step in self.body.steps:
            assert step.kernel is not None
            program += step.kernel.bind(self.body.handles(step, partial(self._place, handles)))
        return (Repeat(self.count, tuple(program)),)

    def _place(self, outside: Handles, offset: int) -> Handle:
        """Return the handle of an offset in the body's plan."""
        for block in self.pinned:
            if block.offset <= offset < block.end:
                place = self.places[block.name]
                group = outside.outputs if place.is_output else outside.inputs
                handle = group[place.slice.tensor]
                assert handle is not None
                within = handle + (place.slice.begin + offset - block.offset)
                return within.within(place.slice.stride)
        assert outside.workspace is not None
        return (outside.workspace + (offset - self._pinned_bytes)).within(0)

    @property
    def _pinned_bytes(self) -> int:
        return sum(block.nbytes for block in self.pinned)
