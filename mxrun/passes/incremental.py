"""Incremental form of a network over sequences: one position a run instead of all at once.

Operators whose results at a position depend on that position alone stay; others are replaced by
their incremental forms, which read what earlier runs have stored in states. The present position is
an input of its own, which all of them share. The positions of a prompt are all known: a second
form of the same network computes a chunk of them a run, with the same states.

Needs: a network without a loss, with the shapes of all variables. Provides: a network of the same
outputs for the positions of a run, and its states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from mxrun.base.errors import Diagnostic, OperatorErrorContext, UserError
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.graph.infer import InferredSpecs, infer
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.symbol import Symbol
from mxrun.operator.incremental import POSITION, IncrementalForm, SequenceArguments
from mxrun.operator.register import AnyProperty, create

# Name of the io slot with the number of the run's first position; a user's names contain no colon.
PRESENT = f"generate:{POSITION}"
# Operator that overwrites a state with the value that it carries to the next run.
_CARRY = "_carry"


@dataclass(frozen=True)
class IncrementalNetwork:
    """Network that computes one position a run, or a chunk of them.

    inputs: specs of its io slots, PRESENT among them if an operator reads it. states: specs of the
    states that runs change, by name; all are zeros before the first position. carries: whether a
    state holds what the last position of a run leaves, so that every position must be run once, in
    order. limit: largest number of positions, if any, and the name of the layer that limits it.
    """

    symbol: Symbol
    inputs: Mapping[str, TensorSpec]
    states: Mapping[str, TensorSpec]
    carries: bool
    limit: int | None = None
    limited_by: str = ""


def incremental(
    symbol: Symbol,
    inputs: Mapping[str, TensorSpec],
    sequences: Collection[str],
    shapes: Mapping[str, Shape],
    length: int,
    chunk: int = 1,
) -> IncrementalNetwork:
    """Return the incremental form of a network for at most `length` positions, `chunk` of them a
    run.

    inputs: specs of its io slots. sequences: those whose axis 1 counts positions. shapes: of
    parameters and states. Raises UserError naming the layers that need all positions at once, or
    cannot compute a chunk.
    """
    inference = _infer(symbol, {**shapes, **_shapes(inputs)}, inputs)
    conversion = _NodeByNode(inference, inputs, sequences, length, chunk)
    for node in symbol.nodes:
        conversion.add(node)
    if conversion.problems:
        raise UserError(conversion.problems)
    network = Symbol([*(conversion.entries[each] for each in symbol.heads), *conversion.carrying])
    known = set(network.list_inputs())
    present = {
        PRESENT: TensorSpec((1,), "int32"),
        **{
            name: replace(spec, shape=(spec.shape[0], chunk, *spec.shape[2:]))
            if name in sequences
            else spec
            for name, spec in inputs.items()
        },
    }
    present = {name: spec for name, spec in present.items() if name in known}
    conversion.check(network, {**shapes, **_shapes(present)}, present)
    inferred = _infer(network, {**shapes, **_shapes(present)}, present)
    states = {
        entry.node.name: inferred.spec(entry)
        for node in network.nodes
        if node.prop is not None
        for entry in (node.inputs[index] for index in node.prop.list_mutated_inputs())
    }
    limit = min(conversion.limits, default=(None, ""))
    carries = bool(conversion.carrying)
    return IncrementalNetwork(network, present, states, carries, *limit)


@dataclass
class _NodeByNode:
    """Conversion of a network node by node.

    entries: the converted network's entry of each of the original. axes: by original entry, the
    axis of its positions; None for one that is the same at all positions. carrying: entries that
    overwrite states. final: the original's entries of values after the last position. failed: nodes
    without an incremental form, and those that depend on them.
    """

    inference: InferredSpecs
    inputs: Mapping[str, TensorSpec]
    sequences: Collection[str]
    length: int
    chunk: int
    position: NodeEntry = field(default_factory=lambda: NodeEntry(Node(PRESENT)))
    entries: dict[NodeEntry, NodeEntry] = field(default_factory=dict)
    axes: dict[NodeEntry, int | None] = field(default_factory=dict)
    carrying: list[NodeEntry] = field(default_factory=list)
    limits: list[tuple[int, str]] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)
    final: set[NodeEntry] = field(default_factory=set)
    failed: set[Node] = field(default_factory=set)

    @property
    def positions(self) -> int:
        """Number of positions of the original."""
        return next(self.inputs[name].shape[1] for name in self.sequences)

    def add(self, node: Node) -> None:
        """Add the form of a node."""
        if not self.failed.isdisjoint(entry.node for entry in node.inputs):
            self.failed.add(node)
            return
        if not self.final.isdisjoint(node.inputs):
            self.problems.append(_whole_sequence(node))
            self.failed.add(node)
            return
        axis = 1 if node.name in self.sequences else None
        converted = self._with_inputs(node)
        axes = tuple(self.axes[entry] for entry in node.argument_entries())
        if any(each is not None for each in axes):
            form = self._form(node, axes)
            if form is None:
                self.failed.add(node)
                return
            axis = form.axis
            self.final.update(_entry_of(node, output) for output in form.final)
            if form.prop is not node.prop:
                converted = self._converted(node, form)
        for index, entry in enumerate(NodeEntry(node, i) for i in range(node.num_outputs)):
            self.entries[entry] = NodeEntry(converted, index)
            self.axes[entry] = None if entry in self.final else axis

    def _with_inputs(self, node: Node) -> Node:
        """Return the node with the converted network's inputs."""
        inputs = tuple(self.entries[entry] for entry in node.inputs)
        return node if inputs == node.inputs else replace(node, inputs=inputs)

    def _form(
        self, node: Node, axes: tuple[int | None, ...]
    ) -> IncrementalForm[AnyProperty] | None:
        """Return the form of a node's operator; None, with the reasons recorded, without one."""
        specs = tuple(self.inference.spec(entry) for entry in node.argument_entries())
        assert node.prop is not None
        sequences = SequenceArguments(specs, axes, self.positions, self.length, self.chunk)
        try:
            with OperatorErrorContext(f"{node.operator} {node.name!r}", node.place):
                form = node.prop.incremental(sequences)
        except UserError as error:
            self.problems += [_of(node, each) for each in error.diagnostics]
            return None
        if form is None:
            self.problems.append(_whole_sequence(node))
        elif self.chunk > 1 and form.prop is not node.prop and not form.chunked:
            one = f"{node.operator} {node.name!r} computes one position a run"
            self.problems.append(Diagnostic(one, place=node.place))
            return None
        elif form.limit is not None:
            self.limits.append((form.limit, node.name))
        return form

    def _converted(self, node: Node, form: IncrementalForm[AnyProperty]) -> Node:
        """Return the node with the form's operator, and wire its states and the position."""
        assert node.prop is not None
        names = (*node.prop.list_arguments(), *node.prop.list_auxiliary_states())
        given = {name: self.entries[entry] for name, entry in zip(names, node.inputs, strict=True)}
        given[POSITION] = self.position
        own = dict.fromkeys((*form.carried, *form.prop.list_auxiliary_states()))
        states = {
            name: NodeEntry(Node(f"{node.name}:{name}"))
            for name in own
            if name in form.carried or name not in given
        }
        wired = {**given, **states}
        names = (*form.prop.list_arguments(), *form.prop.list_auxiliary_states())
        converted = replace(node, prop=form.prop, inputs=tuple(wired[name] for name in names))
        if form.prop.type_string != node.operator:
            # What is set for an operator's kernels says nothing about another's.
            options = replace(converted.options, implementation=None, precision=None)
            converted = replace(converted, options=options)
        outputs = form.prop.list_outputs()
        for state, output in form.carried.items():
            value = NodeEntry(converted, outputs.index(output))
            carry = Node(f"{node.name}:{state}:next", create(_CARRY, {}), (states[state], value))
            self.carrying.append(NodeEntry(carry))
        return converted

    def check(
        self, network: Symbol, shapes: Mapping[str, Shape], inputs: Mapping[str, TensorSpec]
    ) -> None:
        """Raise UserError naming the first layer whose shape for the positions of a run is not its
        shape for all of them with as many positions.
        """
        found = infer(network.heads, shapes, _types(inputs))
        for entry, axis in self.axes.items():
            shape = found.shapes.get(self.entries[entry])
            prop = entry.node.prop
            is_hidden = prop is None or entry.index >= prop.num_visible_outputs
            if axis is None or is_hidden or self.entries[entry] not in found.shapes:
                continue
            expected = list(self.inference.spec(entry).shape)
            expected[axis] = expected[axis] // self.positions * self.chunk
            if shape != tuple(expected):
                raise UserError(_whole_sequence(entry.node, found.contradictions))


def _entry_of(node: Node, output: str) -> NodeEntry:
    """Return the entry of an operator's output by its name."""
    assert node.prop is not None
    return NodeEntry(node, node.prop.list_outputs().index(output))


def _infer(
    symbol: Symbol, shapes: Mapping[str, Shape], inputs: Mapping[str, TensorSpec]
) -> InferredSpecs:
    """Return complete specs of all entries; raises UserError."""
    inference = infer(symbol.heads, shapes, _types(inputs))
    if not inference.complete:
        unknown = Diagnostic("unknown shapes", got=", ".join(inference.unknown))
        raise UserError(inference.diagnostics or unknown)
    return inference


def _shapes(inputs: Mapping[str, TensorSpec]) -> dict[str, Shape]:
    return {name: spec.shape for name, spec in inputs.items()}


def _types(inputs: Mapping[str, TensorSpec]) -> dict[str, str]:
    return {name: spec.dtype for name, spec in inputs.items()}


def _of(node: Node, diagnostic: Diagnostic) -> Diagnostic:
    """Return an operator's diagnostic with the node's name and location."""
    problem = f"{node.operator} {node.name!r}: {diagnostic.problem}"
    return replace(diagnostic, problem=problem, place=diagnostic.place or node.place)


def _whole_sequence(node: Node, causes: Collection[Diagnostic] = ()) -> Diagnostic:
    """Return the diagnostic for a layer that cannot compute one position a run."""
    lacking = f"no incremental form of {node.operator} with these parameters"
    return Diagnostic(
        f"{node.operator} {node.name!r} needs all positions of the sequence at once",
        place=node.place,
        expected="a position computed from itself, or from earlier ones that the layer stores",
        got=next((each.problem for each in causes), lacking),
        hint="combine positions by causal attention or a recurrence alone; write 0 or -1 for their "
        "number in Reshape; an operator of your own defines `position_axis` or `incremental`",
    )
