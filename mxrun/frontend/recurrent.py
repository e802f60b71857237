"""Wiring of `recurrent:`: its layers become the body of a recurrence, with the steps first.

A recurrence has the steps on the first axis of its sequences and outputs, a config on the second:
sequences and outputs pass through SwapAxis. With lengths, outputs are masked; sequences and
memories hold their last values, so that what a layer computes beyond a record's last step is finite
as well, and nothing of it reaches a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation
from mxrun.base.near_names import listed
from mxrun.config import LayerConfig, Names, RecurrentConfig, SourceNode
from mxrun.frontend.axes import Ranks
from mxrun.frontend.recurrent_checks import misplaced, no_lengths
from mxrun.graph.carried import carrying
from mxrun.graph.node import Node, NodeEntry, topological
from mxrun.graph.recurrence.node import recurrent_node
from mxrun.graph.recurrence.operator import SEQUENCE_LENGTH
from mxrun.graph.recurrence.parameters import RecurrenceParameters
from mxrun.graph.recurrence.renamed import renamed
from mxrun.operator.register import create

_BY_LENGTH = {"use_sequence_length": True}
FORWARD, BACKWARD = "forward", "backward"


class Outputs:
    """Outputs of a recurrence: by number, and final memories by name."""

    def __init__(self, stacked: Sequence[NodeEntry], final: Mapping[str, NodeEntry]) -> None:
        self.stacked, self.final = tuple(stacked), dict(final)

    def find(self, output: int | str) -> NodeEntry | None:
        """Return an output by number or name, or None."""
        if isinstance(output, str):
            return self.final.get(output)
        return self.stacked[output] if output < len(self.stacked) else None

    @property
    def names(self) -> list[str]:
        """Numbers and names of the outputs, as they are written in references."""
        return [*map(str, range(len(self.stacked))), *self.final]


class Wiring(Protocol):
    """Wiring of a network's layers, which that of a recurrence extends."""

    diagnostics: Diagnostics
    nodes: dict[str, Node]
    variables: dict[str, Node]
    outputs: dict[str, Outputs]
    inside: dict[str, str]
    previous: NodeEntry | None
    names: Names
    ranks: Ranks
    later: dict[str, LayerConfig]
    recurrence: str

    def add(self, layer: LayerConfig) -> None:
        """Build one layer."""

    def resolve(
        self,
        reference: str,
        scope: str,
        place: SourceLocation | None,
        chain: tuple[str, ...],
        layer: LayerConfig | None = None,
    ) -> NodeEntry | None:
        """Return the entry of a reference, or report why there is none."""


@dataclass(frozen=True)
class _Body:
    """Heads of the layers within, by role, and the tensors outside that they read.

    others: by the names of the body's variables.
    """

    heads: tuple[NodeEntry, ...]
    memories: dict[str, NodeEntry]
    others: dict[str, NodeEntry]


@dataclass(frozen=True)
class _Outside:
    """Tensors outside of a recurrence: sequences, initial values, and lengths."""

    sequences: dict[str, NodeEntry]
    initial: dict[str, NodeEntry]
    lengths: NodeEntry | None


def wire_recurrent(wiring: Wiring, layer: RecurrentConfig) -> None:
    """Build a recurrence; problems are added to the wiring's diagnostics."""
    before = len(wiring.diagnostics)
    outside = _outside(wiring, layer)
    known = {*topological(_all_entries(wiring))} - {*wiring.variables.values()}
    body = _body(wiring, layer, outside, known)
    if body is None or len(wiring.diagnostics) > before:
        stand_in = Node(layer.name, place=layer.place)
        wiring.nodes[layer.name] = stand_in
        width = max(len(layer.keys.outputs or ()), 1)
        entry = NodeEntry(stand_in)
        wiring.outputs[layer.name] = Outputs(
            [entry] * width, dict.fromkeys(layer.keys.final, entry)
        )
    else:
        _Composition(wiring, layer, body, outside).add()
    wiring.names.add(layer.name)
    wiring.previous = wiring.outputs[layer.name].stacked[0]


def _all_entries(wiring: Wiring) -> list[NodeEntry]:
    entries = [NodeEntry(node) for node in wiring.nodes.values()]
    for outputs in wiring.outputs.values():
        entries += [*outputs.stacked, *outputs.final.values()]
    return entries


def _outside(wiring: Wiring, layer: RecurrentConfig) -> _Outside:
    """Resolve the names of layers outside."""

    def found(*path: str) -> NodeEntry | None:
        written = layer.reference(*path)
        return _resolved(wiring, layer, written, layer.scope)

    keys = layer.keys
    lengths = None if keys.lengths is None else found("lengths")
    if lengths is not None:
        wiring.diagnostics += no_lengths(layer, wiring.ranks.of(lengths))
    sequences = {name: found("sequences", name) for name in keys.sequences}
    initial = {
        name: found("memories", name, "initial")
        for name, memory in keys.memories.items()
        if memory.initial is not None
    }
    return _Outside(
        {name: entry for name, entry in sequences.items() if entry is not None},
        {name: entry for name, entry in initial.items() if entry is not None},
        lengths,
    )


def _resolved(
    wiring: Wiring, layer: RecurrentConfig, written: SourceNode, scope: str
) -> NodeEntry | None:
    return wiring.resolve(str(written.value), scope, written.place, layer.chain, layer)


def _body(
    wiring: Wiring, layer: RecurrentConfig, outside: _Outside, known: set[Node]
) -> _Body | None:
    """Wire the layers within; None after a problem."""
    keys, name, before = layer.keys, layer.name, len(wiring.diagnostics)
    first, around = set(wiring.nodes), wiring.recurrence
    _add_variables(wiring, layer, outside)
    wiring.recurrence = name
    wiring.later.update((each.name, each) for each in layer.layers)
    for each in layer.layers:
        wiring.add(each)
    last, heads, memories = wiring.previous, [], {}
    for position, _ in enumerate(keys.outputs or ()):
        heads.append(_resolved(wiring, layer, layer.reference("outputs", position), name))
    for memory in keys.memories:
        written = layer.reference("memories", memory, "layer")
        memories[memory] = _resolved(wiring, layer, written, name)
    wiring.recurrence = around
    own = {key: wiring.nodes.pop(key) for key in [*wiring.nodes] if key not in first}
    wiring.inside.update(dict.fromkeys(own, name))
    entries = [*heads, *memories.values()]
    if len(wiring.diagnostics) > before or None in entries or last is None:
        return None
    stacked = [head for head in heads if head is not None] or [last]
    nexts = {key: entry for key, entry in memories.items() if entry is not None}
    wiring.diagnostics += misplaced(layer, own, [*stacked, *nexts.values()])
    others = _Others(name, known)
    captured = others.captured([*stacked, *nexts.values()])
    return _Body(
        captured[: len(stacked)],
        dict(zip(nexts, captured[len(stacked) :], strict=True)),
        others.given,
    )


def _add_variables(wiring: Wiring, layer: RecurrentConfig, outside: _Outside) -> None:
    """Add the sequences and memories as tensors that the layers within can read."""
    keys = layer.keys
    ranks: dict[str, int | None] = {}
    for key in keys.sequences:
        rank = wiring.ranks.of(outside.sequences[key]) if key in outside.sequences else None
        ranks[key] = None if rank is None else rank - 1
    shapes = {key: memory.shape for key, memory in keys.memories.items()}
    for key in (*keys.sequences, *keys.memories):
        full, shape = f"{layer.name}/{key}", shapes.get(key)
        attributes = {} if shape is None else {"__shape__": str((0, *shape))}
        group = "sequences" if key in keys.sequences else "memories"
        place = layer.node.find(group, key).start
        if full in wiring.nodes:
            problem = f"the name {full!r} is taken"
            wiring.diagnostics.add(Diagnostic(problem, place, hint="choose another name"))
        wiring.nodes[full] = Node(full, attributes=attributes, place=place)
        wiring.names.add(full)
        rank = ranks.get(key) if shape is None else len(shape) + 1
        wiring.ranks.add(full, None if rank is None else (None,) * rank)
    first = next(iter((*keys.sequences, *keys.memories)), None)
    wiring.previous = None if first is None else NodeEntry(wiring.nodes[f"{layer.name}/{first}"])


class _Others:
    """Variables of a body for tensors outside, which are the same at every step.

    given: the tensors by the names of the variables.
    """

    def __init__(self, name: str, known: set[Node]) -> None:
        self._name, self._known = name, known
        self.given: dict[str, NodeEntry] = {}
        self._variables: dict[NodeEntry, NodeEntry] = {}

    def captured(self, heads: Sequence[NodeEntry]) -> tuple[NodeEntry, ...]:
        """Return the heads with variables in place of tensors outside."""
        made: dict[Node, Node] = {}

        def entry(old: NodeEntry) -> NodeEntry:
            if old.node in self._known:
                return self._variable(old)
            return NodeEntry(made[old.node], old.index)

        for node in topological(heads):
            if node not in self._known:
                inputs = tuple(map(entry, node.inputs))
                made[node] = node if inputs == node.inputs else replace(node, inputs=inputs)
        return tuple(map(entry, heads))

    def _variable(self, outer: NodeEntry) -> NodeEntry:
        if outer not in self._variables:
            name = f"{self._name}/outside/{outer.name}"
            self._variables[outer] = NodeEntry(Node(name, place=outer.node.place))
            self.given[name] = outer
        return self._variables[outer]


class _Composition:
    """Nodes of a recurrence and around it."""

    def __init__(
        self, wiring: Wiring, layer: RecurrentConfig, body: _Body, outside: _Outside
    ) -> None:
        self._wiring, self._layer, self._outside = wiring, layer, outside
        self._body, self._name, self._keys = body, layer.name, layer.keys

    def add(self) -> None:
        """Add the recurrence, or one for each direction."""
        wiring, keys, name = self._wiring, self._keys, self._name
        if not keys.bidirectional:
            node, outputs = self._direction(self._body, name, keys.reverse)
            wiring.nodes[name], wiring.outputs[name] = node, outputs
            return
        both = []
        for direction, reverse in ((FORWARD, False), (BACKWARD, True)):
            scope = f"{name}/{direction}"
            node, outputs = self._direction(self._renamed(scope), scope, reverse)
            wiring.nodes[scope] = node
            both.append(outputs)
        first, second = both
        joined = [
            self._joined(f"output{index}", pair)
            for index, pair in enumerate(zip(first.stacked, second.stacked, strict=True))
        ]
        final = {
            key: self._joined(key, (first.final[key], second.final[key])) for key in first.final
        }
        wiring.nodes[name] = wiring.nodes[f"{name}/{FORWARD}"]
        wiring.outputs[name] = Outputs(joined, final)

    def _renamed(self, scope: str) -> _Body:
        """Return a copy of the body for one direction."""
        body, prefix = self._body, f"{self._name}/"

        def rename(name: str) -> str:
            return f"{scope}/{name[len(prefix) :]}" if name.startswith(prefix) else name

        entries = renamed((*body.heads, *body.memories.values()), rename)
        own = {node.name: node for node in topological(entries) if node.is_variable}
        shared = self._wiring.variables
        others = {rename(key): entry for key, entry in body.others.items()}
        others |= {key: NodeEntry(shared[key]) for key in own if key in shared}
        count = len(body.heads)
        memories = dict(zip(body.memories, entries[count:], strict=True))
        return _Body(entries[:count], memories, others)

    def _joined(self, key: str, pair: tuple[NodeEntry, NodeEntry]) -> NodeEntry:
        node = self._node("Concat", f"{self._name}/{key}/joined", [*pair], {"dim": -1})
        return NodeEntry(node)

    def _direction(self, body: _Body, scope: str, reverse: bool) -> tuple[Node, Outputs]:
        """Return the recurrence of one direction, and its outputs with the batch first."""
        keys, lengths = self._keys, self._outside.lengths
        heads, memories = list(body.heads), dict(body.memories)
        given = dict(body.others)
        for key, outer in self._outside.sequences.items():
            given[f"{scope}/{key}"] = self._sequence(outer, f"{scope}/{key}", reverse)
        for key, outer in self._outside.initial.items():
            is_block = keys.memories[key].offset > 1
            name = f"{scope}/{key}"
            given[name] = self._swapped(outer, f"{name}/initial") if is_block else outer
        states = self._states(scope)
        given |= {f"{scope}/{key}": state for key, state in states.items()}
        final = [key for key in keys.memories if key in keys.final or key in states]
        valid = NodeEntry(Node(f"{scope}/valid"))
        if lengths is not None:
            given[SEQUENCE_LENGTH] = lengths
            own = {node.name: node for node in topological([*heads, *memories.values()])}
            memories = {
                key: self._held(valid, head, own, f"{scope}/{key}")
                for key, head in memories.items()
            }
            heads += [memories[key] for key in final]
        parameters = RecurrenceParameters(
            sequences=tuple(f"{scope}/{key}" for key in keys.sequences),
            memories=tuple(f"{scope}/{key}" for key in memories),
            offsets=tuple(keys.memories[key].offset for key in memories),
            initial=tuple(f"{scope}/{key}" for key in (*self._outside.initial, *states)),
            num_outputs=len(heads),
            final=() if lengths else tuple(f"{scope}/{key}" for key in final),
            reverse=reverse and lengths is None,
            use_sequence_length=lengths is not None,
            valid=(valid.name,) if lengths is not None and memories else (),
            steps=keys.steps,
            unroll=keys.unroll,
        )
        node = recurrent_node(
            scope, (*heads, *memories.values()), parameters, given, self._layer.place
        )
        stacked = [
            self._output(NodeEntry(node, index), f"{scope}/output{index}", reverse)
            for index in range(len(body.heads))
        ]
        last = dict(zip(final, range(len(stacked), len(stacked) + len(final)), strict=True))
        outputs = Outputs(stacked, self._finals(node, scope, last, given))
        if not states:
            return node, outputs
        ends = [(state, NodeEntry(node, last[key])) for key, state in states.items()]
        entries = [*outputs.stacked, *outputs.final.values()]
        carried = carrying(scope, entries, ends, self._layer.place)
        count = len(outputs.stacked)
        finals = dict(zip(outputs.final, carried[count:], strict=True))
        return node, Outputs(carried[:count], finals)

    def _states(self, scope: str) -> dict[str, NodeEntry]:
        """Return the variables of the memories that are carried."""
        variables = self._wiring.variables
        names = {
            key: f"{scope}_carried_{key}"
            for key, memory in self._keys.memories.items()
            if memory.carry
        }
        return {
            key: NodeEntry(variables.setdefault(name, Node(name, place=self._layer.place)))
            for key, name in names.items()
        }

    def _finals(
        self,
        node: Node,
        scope: str,
        last: Mapping[str, int],
        given: Mapping[str, NodeEntry],
    ) -> dict[str, NodeEntry]:
        """Return the values of memories after the last step of every record.

        last: number of the output of each memory. given: initial values, by the body's names.
        """
        lengths, final = self._outside.lengths, {}
        for key in self._keys.final:
            entry, name = NodeEntry(node, last[key]), f"{scope}/{key}"
            offset, first = self._keys.memories[key].offset, given.get(name)
            if lengths is not None and offset > 1:
                entry = self._last_values(entry, lengths, first, name, offset)
            elif lengths is not None:
                entry = self._last_value(entry, lengths, first, name)
            if offset > 1:
                entry = self._swapped(entry, f"{name}/final")
            final[key] = entry
        return final

    def _last_value(
        self, values: NodeEntry, lengths: NodeEntry, first: NodeEntry | None, name: str
    ) -> NodeEntry:
        """Return the value [N, ...] after every record's last step; `first` if it has no step.

        values: of the memory `name` after each step, [steps, N, ...].
        """
        node = self._node("SequenceLast", f"{name}/final", [values, lengths], _BY_LENGTH)
        if first is not None:
            inputs = [lengths, NodeEntry(node), first]
            node = self._node("where", f"{name}/final/any", inputs)
        return NodeEntry(node)

    def _last_values(
        self,
        values: NodeEntry,
        lengths: NodeEntry,
        first: NodeEntry | None,
        name: str,
        count: int,
    ) -> NodeEntry:
        """Return the last `count` values [count, N, ...] of every record, the oldest first.

        values: of the memory `name` after each step, [steps, N, ...]. first: those before the first
        step, [count, N, ...], of which a record with fewer steps keeps the latest; None for zeros.
        """
        before = 0
        if first is not None:
            before = count
            joined = self._node("Concat", f"{name}/final/all", [first, values], {"dim": 0})
            values = NodeEntry(joined)
        parameters = {"count": count, "before": before}
        return NodeEntry(
            self._node("_sequence_tail", f"{name}/final/last", [values, lengths], parameters)
        )

    def _sequence(self, outer: NodeEntry, name: str, reverse: bool) -> NodeEntry:
        """Return a sequence with the steps first, in the order in which they run."""
        lengths, entry = self._outside.lengths, self._swapped(outer, f"{name}/steps")
        if lengths is None:
            return entry
        held = self._node("_sequence_hold", f"{name}/valid", [entry, lengths], _BY_LENGTH)
        return self._reversed(NodeEntry(held), lengths, name) if reverse else NodeEntry(held)

    def _output(self, entry: NodeEntry, name: str, reverse: bool) -> NodeEntry:
        """Return a stacked output with the batch first."""
        lengths = self._outside.lengths
        if lengths is not None:
            entry = self._reversed(entry, lengths, name) if reverse else entry
            node = self._node("SequenceMask", f"{name}/valid", [entry, lengths], _BY_LENGTH)
            entry = NodeEntry(node)
        return self._swapped(entry, f"{name}/batch")

    def _reversed(self, entry: NodeEntry, lengths: NodeEntry, name: str) -> NodeEntry:
        node = self._node("SequenceReverse", f"{name}/reversed", [entry, lengths], _BY_LENGTH)
        return NodeEntry(node)

    def _held(
        self, valid: NodeEntry, head: NodeEntry, nodes: Mapping[str, Node], name: str
    ) -> NodeEntry:
        """Return the next value of the memory `name`; its own for records that have ended.

        nodes: those of the body by name. The records that have ended pass on no gradient.
        """
        own = NodeEntry(nodes.get(name) or Node(name, place=self._layer.place))
        own = NodeEntry(self._node("BlockGrad", f"{name}/held", [own]))
        return NodeEntry(self._node("where", f"{name}/kept", [valid, head, own]))

    def _swapped(self, entry: NodeEntry, name: str) -> NodeEntry:
        return NodeEntry(self._node("SwapAxis", name, [entry], {"dim1": 0, "dim2": 1}))

    def _node(
        self,
        operator: str,
        name: str,
        inputs: Sequence[NodeEntry],
        parameters: Mapping[str, object] | None = None,
    ) -> Node:
        given = dict(parameters or {})
        if operator == "Concat":
            given["num_args"] = len(inputs)
        return Node(name, create(operator, given), tuple(inputs), place=self._layer.place)


def no_such_output(
    name: str,
    output: int | str,
    outputs: Outputs,
    place: SourceLocation | None,
    chain: tuple[str, ...],
) -> Diagnostic:
    """Describe a reference to an output that a recurrence does not have."""
    known = [f"{name}[{each}]" for each in outputs.names]
    return Diagnostic(
        f"{name!r} has no output {output!r}",
        place,
        expected=f"one of {listed(known)}",
        got=f"{name}[{output}]",
        hint="outputs: lists layers within it, final: memories",
        chain=chain,
    )
