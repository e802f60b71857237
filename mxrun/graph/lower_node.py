"""Lowering of one node to forward steps: one, or those of all iterations of a recurrence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import FLOAT32
from mxrun.base.layer_options import DEFAULTS, LayerOptions
from mxrun.base.tensor import TensorSpec
from mxrun.graph.composite import expansion_of
from mxrun.graph.graph import (
    GraphBuilder,
    Iteration,
    MemoryClass,
    Step,
    StepKind,
    ValueId,
    writes,
)
from mxrun.graph.infer import InferredSpecs
from mxrun.graph.node import Node, NodeEntry, topological
from mxrun.graph.recurrence.operator import SEQUENCE_LENGTH, RecurrenceProperty, RecurrentMemory
from mxrun.operator.property import ResourceKind
from mxrun.operator.register import create

# Tensor with the key of the run, the step's number and the index of the micro-batch, which every
# random operator reads.
RANDOM_STATE = "random:state"

Entries = dict[NodeEntry, ValueId]


@dataclass(frozen=True)
class Iterations:
    """Iterations of unrolled recurrences, the outermost first, and their random state."""

    of: tuple[Iteration, ...] = ()
    random: Callable[[], ValueId] | None = None

    def name(self, name: str) -> str:
        """Return the name of a step in these iterations."""
        return ":".join((name, *(str(each.number) for each in self.of)))


def add_node(
    builder: GraphBuilder, node: Node, inference: InferredSpecs, entries: Entries, at: Iterations
) -> None:
    """Append the steps of a node; `entries` gets its outputs."""
    prop = node.prop
    if isinstance(prop, RecurrenceProperty) and prop.parameters.unroll:
        _Unrolled(builder, node, prop, inference, entries, at).add()
        return
    assert prop is not None
    if not node.options.fused and _expanded(builder, node, entries, at):
        return
    outputs = []
    for index in range(node.num_outputs):
        entry = NodeEntry(node, index)
        spec = inference.spec(entry)
        entries[entry] = builder.value(at.name(entry.name), spec, MemoryClass.ACTIVATIONS)
        outputs.append(entries[entry])
    for source, target in prop.list_mutated_inputs().items():
        before = entries[node.inputs[source]]
        kind, after = builder.values[before].memory_class, builder.values[outputs[target]]
        builder.values[outputs[target]] = replace(after, memory_class=kind)
        builder.mutations[outputs[target]] = before
    reads = [entries[entry] for entry in node.inputs]
    arguments = [builder.values[entries[entry]].spec for entry in node.argument_entries()]
    if any(r.kind is ResourceKind.RANDOM for r in prop.forward_resource(arguments)):
        reads.append(_run_state(builder) if at.random is None else at.random())
    builder.step(
        Step(
            name=at.name(node.name),
            kind=StepKind.FORWARD,
            prop=prop,
            inputs=tuple(reads),
            outputs=tuple(outputs),
            requests=writes(outputs),
            options=node.options,
            order=len(builder.steps),
            iterations=at.of,
            stream=node.name,
            place=node.place,
        )
    )


def _expanded(builder: GraphBuilder, node: Node, entries: Entries, at: Iterations) -> bool:
    """Append the steps of the network that a composite stands for; False if it is none."""
    reads = [entries[entry] for entry in node.inputs]
    expansion = expansion_of(node, [builder.values[value].spec for value in reads])
    if expansion is None:
        return False
    own = {NodeEntry(each): value for each, value in zip(expansion.variables, reads, strict=True)}
    for each in topological(expansion.outputs):
        if not each.is_variable:
            add_node(builder, each, expansion.inference, own, at)
    for index, entry in enumerate(expansion.outputs):
        entries[NodeEntry(node, index)] = own[entry]
    return True


def _run_state(builder: GraphBuilder) -> ValueId:
    return builder.source(RANDOM_STATE, TensorSpec((3,), "int64"), MemoryClass.IO)


class _Unrolled:
    """Steps of all iterations of one recurrence.

    What an iteration hands on passes through a view, so that the gradients of its own readers are
    summed before those from outside, as in a loop.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        node: Node,
        prop: RecurrenceProperty,
        inference: InferredSpecs,
        entries: Entries,
        at: Iterations,
    ) -> None:
        self._builder, self._node, self._prop, self._at = builder, node, prop, at
        self._outer = entries
        given = dict(zip(prop.list_arguments(), node.inputs, strict=True))
        self._given = {name: self._outside(entries[entry]) for name, entry in given.items()}
        specs = [builder.values[value].spec for value in self._given.values()]
        self._body, self._steps = prop.body_specs(specs), prop.count(specs)
        self._first = len(builder.steps)
        self._states: dict[int, ValueId] = {}

    def add(self) -> None:
        """Append the steps of all iterations."""
        prop, node, steps = self._prop, self._node, self._steps
        sequences = {
            name: self._rows(self._given[name], name) for name in prop.parameters.sequences
        }
        sequences |= {name: self._valid(steps, name) for name in prop.parameters.valid}
        values = {memory.name: self._initial(memory) for memory in prop.memories}
        stacked: dict[int, list[ValueId]] = {index: [] for index in range(len(prop.stacked))}
        order = range(steps - 1, -1, -1) if prop.parameters.reverse else range(steps)
        for number, time in enumerate(order):
            given = {name: rows[time] for name, rows in sequences.items()}
            given |= {memory.name: values[memory.name][number] for memory in prop.memories}
            entries = self._iteration(number, given)
            at = self._iterations(number)
            for memory in prop.memories:
                values[memory.name].append(self._handed_on(entries[memory.head], at))
            for index, head in enumerate(prop.stacked):
                stacked[index].append(self._handed_on(entries[head], at))
        outputs = [
            self._stacked(rows[::-1] if prop.parameters.reverse else rows, index)
            for index, rows in stacked.items()
        ]
        for memory in (memory for memory in prop.memories if memory.is_final):
            last = values[memory.name][-memory.offset :]
            outputs.append(last[0] if memory.offset == 1 else self._stacked(last, len(outputs)))
        self._outer.update((NodeEntry(node, i), value) for i, value in enumerate(outputs))

    def _iterations(self, number: int) -> Iterations:
        def random() -> ValueId:
            if number not in self._states:
                self._states[number] = self._random(number)
            return self._states[number]

        own = Iteration(self._first, number)
        return Iterations((*self._at.of, own), random)

    def _iteration(self, number: int, given: dict[str, ValueId]) -> Entries:
        """Append the steps of one iteration; return the values of the body's entries."""
        entries: Entries = {}
        for node in self._prop.nodes:
            if node.is_variable:
                known = given.get(node.name)
                entries[NodeEntry(node)] = self._given[node.name] if known is None else known
            else:
                add_node(self._builder, node, self._body, entries, self._iterations(number))
        return entries

    def _rows(self, value: ValueId, name: str) -> list[ValueId]:
        spec = self._builder.values[value].spec
        rows = spec.shape[0]
        row = replace(spec, shape=spec.shape[1:])
        parameters = {"num_outputs": rows, "axis": 0, "squeeze_axis": True}
        return self._apply(
            "SliceChannel", parameters, [value], [row] * rows, self._at.name(f"{name}:rows")
        )

    def _valid(self, steps: int, name: str) -> list[ValueId]:
        """Return the masks of the records that have a step, by the number of the iteration."""
        lengths = self._given[SEQUENCE_LENGTH]
        records = self._builder.values[lengths].spec.shape
        specs = [TensorSpec((steps, *records)), TensorSpec((1,), "int64")]
        name = self._at.name(name)
        mask, _ = self._apply("_valid_steps", {"steps": steps}, [lengths], specs, name)
        rows = self._rows(mask, name)
        return rows[::-1] if self._prop.parameters.reverse else rows

    def _initial(self, memory: RecurrentMemory) -> list[ValueId]:
        """Return the values of a memory before the first step, the oldest first."""
        given = self._given.get(memory.name) if memory.has_initial else None
        if given is not None:
            return [given] if memory.offset == 1 else self._rows(given, memory.name)
        spec = self._body.spec(memory.head)
        parameters = {"shape": spec.shape, "dtype": spec.dtype}
        name = self._at.name(f"{memory.name}:initial")
        return self._apply("_zeros", parameters, [], [spec], name) * memory.offset

    def _outside(self, value: ValueId) -> ValueId:
        """Return a tensor as the iterations read it: in float32, unless it is a parameter.

        Each argument is a view of its own, as it has a gradient of its own in a loop. In the body
        of a loop the tensors outside are io.
        """
        own = self._builder.values[value]
        kinds = (MemoryClass.ACTIVATIONS, MemoryClass.IO)
        is_made = own.memory_class in kinds and own.spec.dtype == FLOAT32
        return self._handed_on(value, self._at) if is_made else value

    def _handed_on(self, value: ValueId, at: Iterations) -> ValueId:
        """Return a view of a value, in float32."""
        spec, options = self._builder.values[value].spec, LayerOptions(precision=FLOAT32)
        return self._view(value, spec, at, options)

    def _view(
        self, value: ValueId, spec: TensorSpec, at: Iterations, options: LayerOptions = DEFAULTS
    ) -> ValueId:
        parameters = {"shape": spec.shape}
        name = f"{self._builder.values[value].name}:view{len(self._builder.values)}"
        return self._apply("Reshape", parameters, [value], [spec], name, at, options)[0]

    def _stacked(self, rows: list[ValueId], index: int) -> ValueId:
        """Return the rows as one tensor."""
        spec = self._builder.values[rows[0]].spec
        row = replace(spec, shape=(1, *spec.shape))
        views = [self._view(value, row, self._at) for value in rows]
        stacked = replace(spec, shape=(len(rows), *spec.shape))
        parameters = {"num_args": len(rows), "dim": 0}
        name = self._at.name(NodeEntry(self._node, index).name)
        return self._apply("Concat", parameters, views, [stacked], name)[0]

    def _random(self, number: int) -> ValueId:
        """Return the random state of one iteration."""
        builder, outer = self._builder, self._at.random
        state = _run_state(builder) if outer is None else outer()
        rows = replace(builder.values[state].spec, shape=(1, 3))
        name = self._at.name(f"{self._node.name}:random{number}")
        parameters = {"steps": 1, "first": number}
        (row,) = self._apply("_step_random", parameters, [state], [rows], name)
        return self._view(row, builder.values[state].spec, self._at)

    def _apply(
        self,
        operator: str,
        parameters: Mapping[str, object],
        inputs: list[ValueId],
        specs: list[TensorSpec],
        name: str,
        at: Iterations | None = None,
        options: LayerOptions = DEFAULTS,
    ) -> list[ValueId]:
        """Append a step; return its outputs."""
        builder, at = self._builder, at or self._at
        made = [builder.value(name, spec, MemoryClass.ACTIVATIONS) for spec in specs]
        builder.step(
            Step(
                name=name,
                kind=StepKind.FORWARD,
                prop=create(operator, parameters),
                inputs=tuple(inputs),
                outputs=tuple(made),
                requests=writes(made),
                options=options,
                order=len(builder.steps),
                iterations=at.of,
            )
        )
        return made
