"""Differentiation of recorded calls: which programs run, on which arrays, in which order.

Without functions whose backward is Python code, all calls on a context are one recording, and its
backward one operation of the engine. Such a function cuts the calls: those after it are
differentiated first, then its own backward runs, then those before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from mxrun.base.context import Context
from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import item_size
from mxrun.base.tensor import Shape
from mxrun.imperative.arrays import array as array_module
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.chunk import allocate
from mxrun.imperative.calls.invoke import invoke
from mxrun.imperative.differentiation.backward import (
    ADD,
    DATA,
    GRADIENT,
    HEAD,
    OUTPUT,
    WRITE,
    BackwardProgram,
    Boundary,
    Location,
    Recording,
)
from mxrun.imperative.differentiation.tape import (
    Entry,
    FunctionCall,
    MarkedVariable,
    Node,
    RecordedCall,
    SavedTensor,
)
from mxrun.operator.launch import TensorPlace
from mxrun.operator.register import AnyProperty, create
from mxrun.runtime.engine.interface import EngineOperator, RunContext, Variable

_MAX_PROGRAMS = 1024
_programs: dict[tuple[Any, ...], BackwardProgram] = {}


class Gradients:
    """Gradients of entries, summed in the order in which they are added."""

    def __init__(self) -> None:
        self._found: dict[tuple[Node, int], tuple[Entry, NDArrayBase]] = {}

    def add(self, entry: Entry, gradient: NDArrayBase) -> None:
        """Add a gradient; the arrays given are left as they are."""
        key = (entry.node, entry.index)
        if key in self._found:
            _, before = self._found[key]
            (gradient,) = invoke(_sum(), [before, gradient])
        self._found[key] = (entry, gradient)

    def entries(self) -> list[Entry]:
        """Return the entries that have a gradient."""
        return [entry for entry, _ in self._found.values()]

    def arrays(self) -> list[NDArrayBase]:
        """Return the gradients."""
        return [array for _, array in self._found.values()]

    def take(self, node: Node, index: int) -> NDArrayBase | None:
        """Return and forget the gradient of an entry; None if it has none."""
        _, gradient = self._found.pop((node, index), (None, None))
        return gradient


@dataclass
class Target:
    """Array that the gradient of a variable is written to, or added to with the request `add`.

    A gradient that is computed in parts is written once, and then added to.
    """

    array: NDArrayBase
    request: str = WRITE
    is_reached: bool = False


class RecordedGraph:
    """Calls and variables that heads depend on, in the order of calls."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        ordered = sorted(nodes, key=lambda node: node.number)
        self.calls = [node for node in ordered if isinstance(node, RecordedCall)]
        self.functions = [node for node in ordered if isinstance(node, FunctionCall)]
        self.variables = {node: None for node in ordered if isinstance(node, MarkedVariable)}

    @classmethod
    def ending_with(cls, heads: Gradients) -> RecordedGraph:
        """Return the graph that ends with heads; tensors of freed calls are constants."""
        found: dict[Node, None] = {}
        waiting = [head.node for head in heads.entries()]
        while waiting:
            node = waiting.pop()
            if node in found:
                continue
            found[node] = None
            if not isinstance(node, MarkedVariable):
                waiting += [
                    entry.node for entry in node.inputs if entry is not None and entry.is_live
                ]
        return cls(found)

    def free(self) -> None:
        """Give up the tensors that the calls have saved."""
        for call in self.calls:
            call.free()
        for function in self.functions:
            function.free()


def differentiate(
    graph: RecordedGraph, gradients: Gradients, targets: Mapping[MarkedVariable, Target]
) -> None:
    """Push the operations that compute the gradients of variables from those of the heads.

    gradients: of the heads. Raises UserError if an operator in between has no gradient.
    """
    calls = list(graph.calls)
    for function in reversed(graph.functions):
        later = [call for call in calls if call.number > function.number]
        del calls[len(calls) - len(later) :]
        _differentiate_calls(later, gradients, targets, is_first=False)
        _differentiate_function(function, gradients)
    _differentiate_calls(calls, gradients, targets, is_first=True)
    for target in targets.values():
        if not target.is_reached and target.request == WRITE:
            fill_zero(target.array)


def _differentiate_function(function: FunctionCall, gradients: Gradients) -> None:
    """Run the backward of a function, which is Python code."""
    given = []
    for index, kind in enumerate(function.outputs):
        gradient = gradients.take(function, index)
        if gradient is None:
            gradient = new_array(*kind)
            fill_zero(gradient)
        given.append(gradient)
    returned = function.backward(given)
    for entry, gradient in zip(function.inputs, returned, strict=True):
        if entry is not None and entry.is_live and gradient is not None:
            gradients.add(entry, gradient)


def _differentiate_calls(
    calls: Sequence[RecordedCall],
    gradients: Gradients,
    targets: Mapping[MarkedVariable, Target],
    *,
    is_first: bool,
) -> None:
    """Differentiate calls between functions, of each context apart.

    is_first: whether no calls come before them; then gradients of variables themselves are stored.
    """
    inside = set(calls)
    heads = [
        entry
        for entry in gradients.entries()
        if entry.node in inside or (is_first and isinstance(entry.node, MarkedVariable))
    ]
    given = [(head, gradients.take(head.node, head.index)) for head in heads]
    by_context: dict[Context, dict[Entry, NDArrayBase]] = {}
    for head, array in given:
        if array is not None:
            by_context.setdefault(array.context, {})[head] = array
    for context, own in by_context.items():
        there = [call for call in calls if call.prepared.context == context]
        boundaries = _boundaries(there, own, context)
        recording = Recording(tuple(there), tuple(boundaries), tuple(own))
        _differentiate_recording(recording, list(own.values()), gradients, targets)


def _boundaries(
    calls: Sequence[RecordedCall], heads: Iterable[Entry], context: Context
) -> list[Boundary]:
    """Return what the calls and heads depend on outside of the calls, in the order of calls."""
    inside: set[Node] = set(calls)
    found: dict[tuple[Node, int], Boundary] = {}
    for call in calls:
        for spec, entry in zip(call.prepared.inputs, call.inputs, strict=False):
            if entry is not None and entry.node not in inside and entry.is_live:
                kind = (context, spec.shape, spec.dtype)
                found.setdefault((entry.node, entry.index), Boundary(entry, kind))
    for head in heads:
        node = head.node
        if isinstance(node, MarkedVariable):
            kind = (context, node.shape, node.dtype)
            found.setdefault((node, 0), Boundary(head, kind))
    return sorted(found.values(), key=lambda each: (each.entry.node.number, each.entry.index))


def _differentiate_recording(
    recording: Recording,
    heads: Sequence[NDArrayBase],
    gradients: Gradients,
    targets: Mapping[MarkedVariable, Target],
) -> None:
    """Push the backward of a recording; the gradients of boundaries become known or are stored."""
    arrays: list[NDArrayBase | None] = []
    requests: list[str | None] = []
    for boundary in recording.boundaries:
        node = boundary.entry.node
        if not isinstance(node, MarkedVariable):
            arrays.append(new_array(*boundary.kind))
            requests.append(WRITE)
            continue
        target = targets.get(node)
        arrays.append(None if target is None else target.array)
        requests.append(None if target is None else ADD if target.is_reached else target.request)
    program = _program(recording, requests)
    _push(program, recording, heads, arrays)
    for position in program.reached:
        entry, array = recording.boundaries[position].entry, arrays[position]
        node = entry.node
        if isinstance(node, MarkedVariable):
            targets[node].is_reached = True
        elif array is not None:
            gradients.add(entry, array)


def _program(recording: Recording, requests: Sequence[str | None]) -> BackwardProgram:
    """Return the program for a recording's structure."""
    key = (*requests, *recording.structure())
    found = _programs.get(key)
    if found is None:
        if len(_programs) >= _MAX_PROGRAMS:
            _programs.clear()
        found = _programs[key] = BackwardProgram(recording, requests)
    return found


def _push(
    program: BackwardProgram,
    recording: Recording,
    heads: Sequence[NDArrayBase],
    gradients: Sequence[NDArrayBase | None],
) -> None:
    """Push the operation that writes or adds the gradients of boundaries."""
    if program.program is None:
        return
    places: list[TensorPlace] = []
    reads: dict[Variable, None] = {}
    writes: dict[Variable, None] = {}
    updates: dict[Variable, None] = {}
    chunk = heads[0].chunk
    for location in program.locations:
        if location.kind is GRADIENT:
            gradient = gradients[location.position]
            assert gradient is not None
            chunk, offset = gradient.chunk, gradient.offset
            is_whole = gradient.nbytes >= chunk.nbytes
            kept = location.position in program.updated or not is_whole
            (updates if kept else writes)[chunk.variable] = None
        else:
            chunk, offset = _saved(recording, heads, location)
            reads[chunk.variable] = None
        places.append(chunk.handle + offset if offset else chunk.block)
    for variable in [each for each in writes if each in updates or each in reads]:
        del writes[variable]
        updates[variable] = None
    chunk.engine.push(
        EngineOperator(
            partial(program.program.run, places),
            [each for each in reads if each not in updates],
            list(writes),
            list(updates),
            name="backward",
            context=chunk.context,
        )
    )


def _saved(recording: Recording, heads: Sequence[NDArrayBase], location: Location) -> SavedTensor:
    """Return where a tensor that a backward program reads is."""
    if location.kind is HEAD:
        head = heads[location.position]
        return head.chunk, head.offset
    call = recording.calls[location.position]
    saved: Sequence[SavedTensor | None] = call.extra
    if location.kind is DATA:
        saved = call.data
    elif location.kind is OUTPUT:
        saved = call.outputs
    found = saved[location.index]
    assert found is not None
    return found


@cache
def _sum() -> AnyProperty:
    return create("elemwise_add", {})


def new_array(context: Context, shape: Shape, dtype: str) -> Any:
    """Return a new array with undefined content."""
    chunk = allocate(context, math.prod(shape) * item_size(dtype))
    return array_module.make(chunk, shape, dtype)


def fill_zero(array: NDArrayBase) -> None:
    """Push a function that sets an array to zero."""
    chunk, nbytes = array.chunk, array.nbytes
    begin = chunk.block.offset + array.offset
    memory, device = chunk.block.memory, chunk.device
    is_part = nbytes < chunk.nbytes

    def fill(run_context: RunContext) -> None:
        device.fill(memory, begin, begin + nbytes, 0)

    variables = [chunk.variable]
    chunk.engine.push_sync(
        fill,
        writes=() if is_part else variables,
        updates=variables if is_part else (),
        name="zeros",
        context=chunk.context,
    )
