"""Incremental form of a network over sequences: one position a run instead of all at once.

Operators whose results at a position depend on that position alone stay; others get the present
position as an argument, or states with what earlier runs have stored. The present position is an
input of its own, which all of them share. The positions of a prompt are all known: a second form
of the same network computes a chunk of them a run, with the same states.

Needs: a network without a loss, with the shapes of all variables. Provides: a network of the same
outputs for the positions of a run, and its states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, OperatorErrorContext, UserError
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.graph.carried import CARRIED, carrying
from mxrun.graph.infer import InferredSpecs, diagnostic_of, infer
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.symbol import Symbol
from mxrun.operator.incremental import POSITION, IncrementalForm, SequenceArguments
from mxrun.operator.register import AnyProperty

# Name of the io slot with the number of the run's first position; a user's names contain no colon.
PRESENT = f"generate:{POSITION}"


@dataclass(frozen=True)
class IncrementalNetwork:
    """Network that computes one position a run, or a chunk of them.

    inputs: specs of its io slots, PRESENT among them if an operator reads it. carries: whether a
    state holds what the last position of a run leaves, so that every position must be run once, in
    order. limit: largest number of positions, if any.
    """

    symbol: Symbol
    inputs: Mapping[str, TensorSpec]
    carries: bool
    limit: int | None = None


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
    parameters and states. All states that runs change are zeros before the first position. Raises
    UserError naming the layers that need all positions at once, or cannot compute a chunk.
    """
    inference = _infer(symbol, shapes, inputs)
    _require_complete(inference)
    positions = next(inputs[name].shape[1] for name in sequences)
    carried = frozenset(symbol.list_carried_states())
    conversion = _NodeByNode(inference, sequences, positions, length, chunk, carried)
    for node in symbol.nodes:
        conversion.add(node)
    if conversion.problems:
        raise UserError(conversion.problems)
    network = Symbol(conversion.entries[each] for each in symbol.heads)
    known = set(network.list_inputs())
    present = {
        name: replace(spec, shape=(spec.shape[0], chunk, *spec.shape[2:]))
        if name in sequences
        else spec
        for name, spec in inputs.items()
    } | {PRESENT: TensorSpec((1,), "int32")}
    present = {name: spec for name, spec in present.items() if name in known}
    conversion.check(_infer(network, shapes, present))
    carries = any(node.operator == CARRIED for node in network.nodes)
    return IncrementalNetwork(network, present, carries, min(conversion.limits, default=None))


@dataclass
class _NodeByNode:
    """Conversion of a network node by node.

    positions: number of positions of the original. states: names of its carried states. entries:
    the converted network's entry of each visible one of the original. axes: by original entry, the
    axis of its positions; None for one that is the same at all positions. final: the original's
    entries of values after the last position. failed: nodes without an incremental form, and those
    that depend on them.
    """

    inference: InferredSpecs
    sequences: Collection[str]
    positions: int
    length: int
    chunk: int
    states: frozenset[str]
    position: NodeEntry = field(default_factory=lambda: NodeEntry(Node(PRESENT)))
    entries: dict[NodeEntry, NodeEntry] = field(default_factory=dict)
    axes: dict[NodeEntry, int | None] = field(default_factory=dict)
    limits: list[int] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)
    final: set[NodeEntry] = field(default_factory=set)
    failed: set[Node] = field(default_factory=set)

    def add(self, node: Node) -> None:
        """Add the form of a node."""
        if not self.failed.isdisjoint(entry.node for entry in node.inputs):
            self.failed.add(node)
        elif node.operator == CARRIED:
            # The form of the layer carries the states.
            self._pass_on(node)
        elif not self.final.isdisjoint(node.inputs):
            self._fail(node, [_whole_sequence(node)])
        else:
            self._add(node)

    def _pass_on(self, node: Node) -> None:
        """Add the output of a layer without the mark, unless it has no form."""
        entry, given = NodeEntry(node), node.inputs[0]
        self.entries[entry], self.axes[entry] = self.entries[given], self.axes[given]
        if given in self.final:
            self.final.add(entry)
        elif self.axes[given] is None:
            self._fail(node, [_whole_sequence(given.node)])

    def _fail(self, node: Node, problems: Collection[Diagnostic]) -> None:
        self.problems += problems
        self.failed.add(node)

    def _add(self, node: Node) -> None:
        axis = 1 if node.name in self.sequences else None
        inputs = tuple(self.entries[entry] for entry in node.inputs)
        converted = node if inputs == node.inputs else replace(node, inputs=inputs)
        visible = node.num_outputs if node.prop is None else node.prop.num_visible_outputs
        outputs = [NodeEntry(converted, index) for index in range(visible)]
        final: Collection[int] = ()
        axes = tuple(self.axes[entry] for entry in node.argument_entries())
        if any(each is not None for each in axes):
            form = self._form(node, axes)
            if form is None:
                return
            axis, final = form.axis, form.final
            if form.prop is not node.prop:
                outputs = self._outputs(converted, form)[:visible]
        for index, output in enumerate(outputs):
            entry = NodeEntry(node, index)
            self.entries[entry] = output
            self.axes[entry] = None if index in final else axis
        self.final.update(NodeEntry(node, index) for index in final)

    def _form(
        self, node: Node, axes: tuple[int | None, ...]
    ) -> IncrementalForm[AnyProperty] | None:
        """Return the form of a node's operator; None, with the reasons recorded, without one."""
        specs = tuple(self.inference.spec(entry) for entry in node.argument_entries())
        assert node.prop is not None
        named = zip(node.prop.list_arguments(), node.inputs, strict=False)
        carried = frozenset(name for name, entry in named if entry.node.name in self.states)
        sequences = SequenceArguments(specs, axes, self.positions, self.length, self.chunk, carried)
        form = None
        try:
            with OperatorErrorContext(f"{node.operator} {node.name!r}", node.place):
                form = node.prop.incremental(sequences)
        except UserError as error:
            self._fail(node, [diagnostic_of(node, each) for each in error.diagnostics])
        else:
            if form is None:
                self._fail(node, [_whole_sequence(node)])
            elif form.limit is not None:
                self.limits.append(form.limit)
        return form

    def _outputs(self, node: Node, form: IncrementalForm[AnyProperty]) -> list[NodeEntry]:
        """Return the outputs of a node's form, and wire its states and the position."""
        assert node.prop is not None
        names = (*node.prop.list_arguments(), *node.prop.list_auxiliary_states())
        given = dict(zip(names, node.inputs, strict=True)) | {POSITION: self.position}
        names = (*form.prop.list_arguments(), *form.prop.list_auxiliary_states())
        states = {
            name: NodeEntry(Node(f"{node.name}:{name}"))
            for name in names
            if name in form.carried or name not in given
        }
        wired = given | states
        node = replace(node, prop=form.prop, inputs=tuple(wired[name] for name in names))
        if form.prop.list_mutated_inputs():
            # The states that several phases store have the dtype of the data.
            node = replace(node, options=replace(node.options, precision=None))
        outputs = [NodeEntry(node, index) for index in range(node.num_outputs)]
        ends = [(states[name], outputs[index]) for name, index in form.carried.items()]
        return carrying(node.name, outputs, ends, node.place) if ends else outputs

    def check(self, found: InferredSpecs) -> None:
        """Raise UserError naming the first layer whose shape for the positions of a run is not its
        shape for all of them with as many positions, and for shapes that are not known.
        """
        for entry, axis in self.axes.items():
            shape = found.shapes.get(self.entries[entry])
            if axis is None or self.entries[entry] not in found.shapes:
                continue
            expected = list(self.inference.spec(entry).shape)
            expected[axis] = expected[axis] // self.positions * self.chunk
            if shape != tuple(expected):
                raise UserError(_whole_sequence(entry.node, found.contradictions))
        _require_complete(found)


def _infer(
    symbol: Symbol, shapes: Mapping[str, Shape], inputs: Mapping[str, TensorSpec]
) -> InferredSpecs:
    known = {**shapes, **{name: spec.shape for name, spec in inputs.items()}}
    return infer(symbol.heads, known, {name: spec.dtype for name, spec in inputs.items()})


def _require_complete(inference: InferredSpecs) -> None:
    """Raise UserError unless all specs are known."""
    if not inference.complete:
        unknown = Diagnostic("unknown shapes", got=", ".join(inference.unknown))
        raise UserError(inference.diagnostics or unknown)


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
