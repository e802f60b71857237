"""Backward programs: plans of the gradients of recorded calls, by the structure of a recording.

Recorded calls become the forward steps of a Graph, with the kernels that ran. It is differentiated
as the graph of a network is, and only the backward steps are planned. Two recordings with the same
prepared operators, wired alike, share the program: it is bound to the tensors of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.compiler.external import SelectedKernel, plan_backward, source_name
from mxrun.device.storage import device_of
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, Step, StepKind, ValueId, writes
from mxrun.graph.trainability import reached
from mxrun.imperative.calls.prepared import PreparedProgram
from mxrun.imperative.differentiation.tape import Entry, Node, RecordedCall, TensorLike
from mxrun.operator.register import create

WRITE, ADD, NULL = "write", "add", "null"


@dataclass(frozen=True)
class Boundary:
    """Tensor from outside of a recording whose gradient may be wanted: a marked variable, or an
    output of a call that is not part of it.

    entry: what it is. kind: context, shape and dtype.
    """

    entry: Entry
    kind: TensorLike


@dataclass(frozen=True)
class Recording:
    """Calls on one context, in the order of calls.

    heads: the entries that are differentiated: outputs of the calls, or of `boundaries`, which the
    calls depend on.
    """

    calls: tuple[RecordedCall, ...]
    boundaries: tuple[Boundary, ...]
    heads: tuple[Entry, ...]

    def structure(self) -> tuple[Any, ...]:
        """Return what a backward program depends on: operators, wiring, specs and heads."""
        numbers = {
            (each.entry.node, each.entry.index): number
            for number, each in enumerate(self.boundaries)
        }
        first = len(numbers)
        calls: dict[Node, int] = {call: first + at for at, call in enumerate(self.calls)}

        def place(entry: Entry | None) -> tuple[int, int] | None:
            if entry is None:
                return None
            number = calls.get(entry.node)
            if number is not None:
                return number, entry.index
            outside = numbers.get((entry.node, entry.index))
            return None if outside is None else (outside, 0)

        return (
            *(each.kind for each in self.boundaries),
            *((call.prepared, *map(place, call.inputs)) for call in self.calls),
            *map(place, self.heads),
        )


# Kinds of places of a backward program's memories.
DATA, OUTPUT, EXTRA, HEAD, GRADIENT = "data", "output", "extra", "head", "gradient"


@dataclass(frozen=True)
class Location:
    """Place of a memory of a backward program.

    kind: argument `index` of call `position` (DATA), its output (OUTPUT) or an extra output of its
    kernel (EXTRA); the gradient of head `position` (HEAD) or of boundary `position` (GRADIENT).
    """

    kind: str
    position: int
    index: int = 0


class BackwardProgram:
    """Program of the gradients of a recording with respect to some of its boundaries.

    locations: of the program's memories. reached: positions of the boundaries that have a gradient;
    that of the others is zero. updated: positions of those whose gradient is added to. program:
    None if no gradient needs to be computed.
    """

    def __init__(self, recording: Recording, requests: Sequence[str | None]) -> None:
        forward = _ForwardGraph(recording)
        graph = forward.builder.build()
        names = {_variable(i): i for i, request in enumerate(requests) if request is not None}
        found = reached(graph, names, forward.heads)
        self.reached = frozenset(names[name] for name in found)
        self.updated = frozenset(i for i in self.reached if requests[i] == ADD)
        self.locations: tuple[Location, ...] = ()
        self.program: PreparedProgram | None = None
        if not found:
            return
        gradients = {name: _gradient(names[name]) for name in found}
        added = {_gradient(position) for position in self.updated}
        context = recording.boundaries[0].kind[0]
        device = device_of(context)
        plan = plan_backward(
            graph, device.description, forward.kernels, gradients, forward.heads, added
        )
        known = {_gradient(i): Location(GRADIENT, i) for i in self.reached} | forward.locations
        self.locations = tuple(known[name] for name in plan.specs)
        self.program = PreparedProgram(plan, device, context)


class _ForwardGraph:
    """Forward graph of a recording.

    heads: the value of its gradient for each head. kernels: those that ran. locations: of the
    tensors, by the names of the sources that backward programs give them.
    """

    def __init__(self, recording: Recording) -> None:
        self.builder = GraphBuilder(Graph(is_train=True))
        self.heads: dict[ValueId, ValueId] = {}
        self.kernels: dict[str, SelectedKernel] = {}
        self.locations: dict[str, Location] = {}
        self._entries: dict[tuple[Node, int], ValueId] = {}
        self._names: dict[ValueId, str] = {}
        # The same tensor in the layout in which a reader found it.
        self._aliases: dict[tuple[ValueId, str], ValueId] = {}
        for position, boundary in enumerate(recording.boundaries):
            _, shape, dtype = boundary.kind
            name = _variable(position)
            value = self.builder.source(name, TensorSpec(shape, dtype), MemoryClass.PARAMETERS)
            entry = boundary.entry
            self._entries[entry.node, entry.index], self._names[value] = value, name
        for position, call in enumerate(recording.calls):
            self._add(position, call)
        for position, head in enumerate(recording.heads):
            self._enter(position, self._entries[head.node, head.index])

    def _add(self, position: int, call: RecordedCall) -> None:
        prepared, step = call.prepared, call.prepared.step
        name = f"{prepared.name}{position}"
        inputs = []
        for index, (spec, entry) in enumerate(zip(prepared.inputs, call.inputs, strict=False)):
            value = None if entry is None else self._entries.get((entry.node, entry.index))
            if value is None:
                value = self.builder.value(f"{name}_data{index}", spec, MemoryClass.ACTIVATIONS)
            elif self.builder.values[value].spec != spec:
                value = self._alias(value, spec)
            inputs.append(value)
            if call.data[index] is not None:
                self._locate(value, Location(DATA, position, index))
        outputs = []
        specs = prepared.output_specs
        for index, spec in enumerate(specs):
            value = self.builder.value(f"{name}_output{index}", spec, MemoryClass.ACTIVATIONS)
            outputs.append(value)
            self._entries[call, index] = value
            if call.outputs[index] is not None:
                self._locate(value, Location(OUTPUT, position, index))
        self.builder.step(
            replace(
                step,
                name=name,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                requests=writes(outputs),
                order=len(self.builder.steps),
            )
        )
        if prepared.selected is not None:
            self.kernels[name] = replace(prepared.selected, extra=self._extra(position, call, name))

    def _extra(self, position: int, call: RecordedCall, name: str) -> tuple[ValueId, ...]:
        assert call.prepared.selected is not None
        extra = []
        for index, spec in enumerate(call.prepared.selected.kernel.extra_outputs):
            value = self.builder.value(f"{name}_extra{index}", spec, MemoryClass.ACTIVATIONS)
            self._locate(value, Location(EXTRA, position, index))
            extra.append(value)
        return tuple(extra)

    def _alias(self, value: ValueId, spec: TensorSpec) -> ValueId:
        """Return a view of a value, whose tensor was moved to another layout after it was made."""
        key = (value, spec.layout.name)
        if key not in self._aliases:
            source = self.builder.values[value]
            name = f"{source.name}@{spec.layout.name}"
            view = self.builder.value(name, spec, MemoryClass.ACTIVATIONS)
            step = Step(
                name=name,
                kind=StepKind.FORWARD,
                prop=create("Reshape", {"shape": spec.shape}),
                inputs=(value,),
                outputs=(view,),
                requests=writes((view,)),
                order=len(self.builder.steps),
            )
            self.builder.step(step)
            self._aliases[key] = view
        return self._aliases[key]

    def _enter(self, position: int, head: ValueId) -> None:
        """Add the source of a head's gradient; several gradients of one head are added up."""
        spec = self.builder.values[head].spec.with_layout(PLAIN)
        name = f"head:{position}"
        value = self.builder.source(name, spec, MemoryClass.IO)
        self.locations[name] = Location(HEAD, position)
        self.heads[head] = value

    def _locate(self, value: ValueId, location: Location) -> None:
        self.locations.setdefault(self._names.get(value, source_name(value)), location)


def _variable(position: int) -> str:
    return f"variable:{position}"


def _gradient(position: int) -> str:
    return f"grad:{position}"
