"""Recurrence as an operator: a body that is applied to every time step of its sequences.

With `time` the first axis of sequences and outputs, and T its size, for t = 0 .. T - 1, or from
T - 1 to 0 if reversed:

    heads(t) = body(sequences[t], memories(t), others)
    memory(t) = head(t - offset), or its initial value where t < offset

The initial value of a memory with offset 1 has the head's shape; with a larger offset the values
before the first step are stacked, the oldest first, and so are the last values.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.once import cached_property
from mxrun.base.tensor import PartialShape, Shape, TensorSpec
from mxrun.graph.attributes import declared_shape
from mxrun.graph.infer import InferredSpecs, infer
from mxrun.graph.node import Node, NodeEntry, topological
from mxrun.graph.recurrence.gradient_kinds import differentiated_variables, gradient_kinds
from mxrun.graph.recurrence.parameters import RecurrenceParameters
from mxrun.operator.incremental import IncrementalForm, SequenceArguments
from mxrun.operator.operator import Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    ResourceKind,
    ResourceRequest,
)
from mxrun.operator.shape import NestedContradiction, ShapeContradiction, require_complete, unify

T = TypeVar("T")
SEQUENCE_LENGTH = "sequence_length"
# A shape may have to pass from a memory to its head as often as there are memories.
_MIN_SWEEPS = 2


@dataclass(frozen=True)
class RecurrentMemory:
    """Variable that reads `head` of the body `offset` steps before."""

    name: str
    head: NodeEntry
    offset: int
    has_initial: bool
    is_final: bool


class RecurrenceProperty(OperatorProperty[RecurrenceParameters]):
    """Body applied to every step; arguments are its variables, outputs are stacked heads.

    Arguments: sequences [T, ...], initial values, variables with one value for all steps, and the
    lengths of the records [N] int32. Outputs: stacked heads [T, ...] and final memories. With
    lengths only the steps of the longest record run; later rows of outputs are undefined, and so
    are their gradients.
    """

    type_string = "recurrent"
    parameter_type = RecurrenceParameters
    reads_only_data = True
    unchecked = "A recurrence is a network of checked operators."

    def __init__(self, parameters: RecurrenceParameters, body: Sequence[NodeEntry]) -> None:
        super().__init__(parameters)
        self.body = tuple(body)
        # Results of inference: a recurrence around this one asks for the same several times, and
        # each further one around it for all of that several times.
        self._shapes: dict[Hashable, PartialInference] = {}
        self._types: dict[Hashable, dict[str, PartialType]] = {}

    def require_consistent(self) -> None:
        """Raise UserError unless the parameters fit the body and each other."""
        given = self.parameters
        memories, names = given.memories, (*given.sequences, *given.memories)
        problem = ""
        if len(self.body) != given.num_outputs + len(memories):
            heads = given.num_outputs + len(memories)
            problem = f"the body has {len(self.body)} heads, not {heads}"
        elif len(given.offsets) != len(memories):
            problem = f"there are {len(memories)} memories, but {len(given.offsets)} offsets"
        elif len(set(names)) < len(names):
            problem = "two sequences or memories have one name"
        elif not {*given.initial, *given.final} <= {*memories}:
            problem = "an initial or final value is of no memory"
        elif given.valid and not given.use_sequence_length:
            problem = "a mask of valid steps needs lengths"
        elif given.final and given.use_sequence_length:
            problem = "the values after the last steps of records are rows of an output"
        elif bool(given.sequences) is (given.steps is not None):
            problem = "the number of steps is that of the sequences, or given if there are none"
        elif any(
            node.prop is not None and node.prop.list_auxiliary_states() for node in self.nodes
        ):
            problem = "an operator of the body has states"
        if problem:
            raise UserError(Diagnostic(f"{self.type_string}: {problem}"))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes of the body, inputs before users."""
        return tuple(topological(self.body))

    @cached_property
    def stacked(self) -> tuple[NodeEntry, ...]:
        """Heads of the body that are stacked."""
        return self.body[: self.parameters.num_outputs]

    @cached_property
    def memories(self) -> tuple[RecurrentMemory, ...]:
        """Memories with their heads."""
        given = self.parameters
        heads = self.body[given.num_outputs :]
        return tuple(
            RecurrentMemory(name, head, offset, name in given.initial, name in given.final)
            for name, head, offset in zip(given.memories, heads, given.offsets, strict=True)
        )

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Names of the variables that have one value for all steps."""
        given = self.parameters
        own = {*given.sequences, *given.memories, *given.valid}
        variables = (node.name for node in self.nodes if node.is_variable)
        return tuple(name for name in variables if name not in own)

    def count(self, arguments: Sequence[TensorSpec]) -> int:
        """Return the number of steps; arguments: specs in the order of `list_arguments`."""
        return self.parameters.steps or arguments[0].shape[0]

    # -- interface ---------------------------------------------------------------------------

    def list_arguments(self) -> tuple[str, ...]:
        """Sequences, initial values, other variables, and lengths."""
        given = self.parameters
        initial = tuple(memory.name for memory in self.memories if memory.has_initial)
        lengths = (SEQUENCE_LENGTH,) if given.use_sequence_length else ()
        return (*given.sequences, *initial, *self.others, *lengths)

    def list_outputs(self) -> tuple[str, ...]:
        """Stacked heads as output0, output1, ..., then the names of the final memories."""
        stacked = tuple(f"output{index}" for index in range(len(self.stacked)))
        final = tuple(memory.name.rpartition("/")[2] for memory in self.memories if memory.is_final)
        return ("output", *final) if len(stacked) == 1 else (*stacked, *final)

    @property
    def mixes_samples(self) -> bool:
        """True if an operator of the body does."""
        return any(node.prop is not None and node.prop.mixes_samples for node in self.nodes)

    def incremental(
        self, sequences: SequenceArguments
    ) -> IncrementalForm[OperatorProperty[Any]] | None:
        """Return the run's steps, whose memories after them are those before the next run.

        None if other arguments than the sequences have positions. Raises UserError for memories
        that do not begin as zeros, for reversed steps, and for lengths.
        """
        given, arguments = self.parameters, self.list_arguments()
        begins = sequences.carried.issuperset(given.initial)
        if given.reverse or given.use_sequence_length or not begins:
            raise UserError(
                Diagnostic(
                    "the recurrence cannot compute one position after the other",
                    expected="memories that begin as zeros, forwards, without lengths",
                )
            )
        is_known = all(
            sequences.counts_positions(index, axis=0) if name in given.sequences else axis is None
            for index, (name, axis) in enumerate(zip(arguments, sequences.axes, strict=True))
        )
        if not is_known:
            return None
        unroll = sequences.chunk == 1
        changed = {"initial": given.memories, "final": given.memories, "unroll": unroll}
        form = RecurrenceProperty(given.model_copy(update=changed), self.body)
        count = len(self.stacked)
        carried = {name: count + index for index, name in enumerate(given.memories)}
        return IncrementalForm(form, 0, carried, range(count, len(self.list_outputs())))

    # -- inference ---------------------------------------------------------------------------

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Complete all shapes through the body, in both directions."""
        given = (*inputs, *outputs)
        if given not in self._shapes:
            self._shapes[given] = _Shapes(self, inputs, outputs).run()
        found = self._shapes[given]
        return PartialInference([*found.inputs], [*found.outputs], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Complete the dtypes through the body; a memory has the dtype of its head."""
        types = dict(zip(self.list_arguments(), inputs, strict=True))
        types.pop(SEQUENCE_LENGTH, None)
        known = {name: dtype for name, dtype in types.items() if dtype is not None}
        known |= dict.fromkeys(self.parameters.valid, "float32")
        found = self._body_types(known)
        heads = (*self.stacked, *(memory.head for memory in self.memories if memory.is_final))
        arguments = [
            "int32" if name == SEQUENCE_LENGTH else found.get(name)
            for name in self.list_arguments()
        ]
        given = zip(outputs, heads, strict=True)
        return arguments, [dtype or found.get(head.name) for dtype, head in given]

    def _body_types(self, known: dict[str, str]) -> dict[str, PartialType]:
        """Return the dtypes of the body's entries by name; None where nothing decides it."""
        given = frozenset(known.items())
        if given not in self._types:
            self._types[given] = self._inferred_types(known)
        return self._types[given]

    def _inferred_types(self, given: Mapping[str, str]) -> dict[str, PartialType]:
        known = dict(given)
        for _ in range(len(self.memories) + _MIN_SWEEPS):
            inferred = infer(self.body, {}, known)
            if inferred.mistyped:
                raise UserError(inferred.mistyped)
            before = len(known)
            for memory in self.memories:
                own, head = NodeEntry(self.variable(memory.name)), memory.head
                for entry, other in ((own, head), (head, own)):
                    # A memory that no operator reads is no tensor of the body.
                    is_known = entry in inferred.types and entry not in inferred.assumed
                    if other.node.is_variable and is_known:
                        known.setdefault(other.node.name, inferred.types[entry])
            if len(known) == before:
                break
        return {
            entry.name: None if entry in inferred.assumed else dtype
            for entry, dtype in inferred.types.items()
        }

    def body_specs(self, arguments: Sequence[TensorSpec]) -> InferredSpecs:
        """Return the specs of all tensors of the body, given those of the arguments.

        Raises ShapeContradiction if they contradict each other.
        """
        shapes = _Shapes(
            self, [spec.shape for spec in arguments], [None] * len(self.list_outputs())
        )
        shapes.run()
        named = dict(zip(self.list_arguments(), arguments, strict=True))
        types = {name: spec.dtype for name, spec in named.items() if name != SEQUENCE_LENGTH}
        types |= dict.fromkeys(self.parameters.valid, "float32")
        types |= {name: dtype for name, dtype in self._body_types(types).items() if dtype}
        return infer(self.body, shapes.variables(), types)

    def variable(self, name: str) -> Node:
        """Return the body's variable of a name; a new one if no operator reads it."""
        return self._variables.get(name) or self._variables.setdefault(name, Node(name))

    @cached_property
    def _variables(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes if node.is_variable}

    # -- needs and hints -----------------------------------------------------------------------

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """Kind of each argument's gradient: that of the body's variable."""
        return tuple(self._kinds.get(name, GradientKind.ZERO) for name in self.list_arguments())

    def list_differentiated(self) -> frozenset[str]:
        """Variables for which some operator of the body has a gradient."""
        return differentiated_variables(self.nodes)

    @cached_property
    def _kinds(self) -> dict[str, GradientKind]:
        """Gradient kinds of the body's variables: the strongest over their readers."""
        heads = [*self.stacked, *(each.head for each in self.memories if each.is_final)]
        memories = {memory.name: memory.head for memory in self.memories}
        return gradient_kinds(self.nodes, heads, memories)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and the inputs; what the body's steps made is kept by the compiler."""
        return [*out_grad, *in_data]

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Return a request for random numbers if an operator of the body has one."""
        inferred = self.body_specs(inputs)
        for node in self.nodes:
            if node.prop is not None:
                specs = [inferred.spec(entry) for entry in node.argument_entries()]
                requests = node.prop.forward_resource(specs)
                if any(each.kind is ResourceKind.RANDOM for each in requests):
                    return [ResourceRequest(ResourceKind.RANDOM)]
        return []

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return the operations of all steps."""
        shapes = _Shapes(self, [*in_shapes], [None] * len(self.list_outputs()))
        shapes.run()
        inferred = infer(self.body, shapes.variables())
        total = 0
        for node in self.nodes:
            if node.prop is not None:
                outputs = (NodeEntry(node, index) for index in range(node.num_outputs))
                total += node.prop.flops(
                    [require_complete(inferred.shapes[entry]) for entry in node.inputs],
                    [require_complete(inferred.shapes[entry]) for entry in outputs],
                )
        return total * (shapes.steps or 0)

    def create_operator(self) -> Operator:
        """Raise TypeError: the kernels of a recurrence are those of its body."""
        raise TypeError("a recurrence has no NumPy body")


class _Shapes:
    """Inference of one recurrence's shapes: those of its arguments, outputs and body."""

    def __init__(
        self, prop: RecurrenceProperty, inputs: PartialShapes, outputs: PartialShapes
    ) -> None:
        self.prop = prop
        self.outputs = outputs
        self.steps = prop.parameters.steps
        self.given = dict(zip(prop.list_arguments(), inputs, strict=True))
        self.entries: dict[NodeEntry, PartialShape] = {}

    def run(self) -> PartialInference:
        """Infer until nothing changes; raises ShapeContradiction."""
        prop, given = self.prop, self.given
        sequences = prop.parameters.sequences
        stacked = self.outputs[: len(prop.stacked)]
        for name, shape in (
            *((name, given[name]) for name in sequences),
            *zip(prop.list_outputs(), stacked, strict=False),
        ):
            if shape:
                (self.steps,) = unify(name, (shape[0],), (self.steps,), "steps") or (None,)
        for name in sequences:
            self._know(name, NodeEntry(prop.variable(name)), _inner(name, given[name]))
        for name in prop.others:
            self._know(name, NodeEntry(prop.variable(name)), given[name])
        for name, head, shape in zip(prop.list_outputs(), prop.stacked, stacked, strict=False):
            self._know(name, head, _inner(name, shape))
        for name in prop.parameters.valid:
            self._know(name, NodeEntry(prop.variable(name)), given[SEQUENCE_LENGTH])
        finals = iter(self.outputs[len(stacked) :])
        for memory in prop.memories:
            own = prop.variable(memory.name)
            self._know(memory.name, NodeEntry(own), declared_shape(own))
            if memory.has_initial:
                self._begin(memory, given[memory.name])
            if memory.is_final:
                self._know(memory.name, NodeEntry(own), _row(memory, next(finals)))
        self._sweep()
        return self._result()

    def variables(self) -> dict[str, PartialShape]:
        """Return the shapes of the body's variables by name."""
        return {e.node.name: shape for e, shape in self.entries.items() if e.node.is_variable}

    def _begin(self, memory: RecurrentMemory, shape: PartialShape) -> None:
        """Take in the shape of a memory's initial value."""
        own = self.prop.variable(memory.name)
        known = self.entries.get(NodeEntry(own))
        block = known if known is None or memory.offset == 1 else (memory.offset, *known)
        hint = f"it has the axes of {memory.head.node.name!r} in one step"
        if memory.offset > 1:
            hint += f", and {memory.offset} values, the oldest first"
        try:
            unify("", shape, block)
            self._know(memory.name, NodeEntry(own), _row(memory, shape))
        except ShapeContradiction as problem:
            text = f"the initial value of the memory {own.name!r} has another shape than the memory"
            raise _nested(own, text, problem, hint) from problem

    def _hand_on(self, memory: RecurrentMemory) -> None:
        """Unify the shapes of a memory and its head."""
        own, head = self.prop.variable(memory.name), memory.head
        try:
            self._know(memory.name, NodeEntry(own), self.entries.get(head))
        except ShapeContradiction as problem:
            text = f"the memory {own.name!r} has another shape than {head.node.name!r}"
            raise _nested(own, text, problem, "a memory has the shape of its layer") from problem
        self._know(head.name, head, self.entries[NodeEntry(own)])

    def _know(self, name: str, entry: NodeEntry, shape: PartialShape) -> None:
        self.entries[entry] = unify(name, self.entries.get(entry), shape, "the body")

    def _sweep(self) -> None:
        prop = self.prop
        for _ in range(len(prop.memories) + _MIN_SWEEPS):
            before = dict(self.entries)
            inferred = infer(prop.body, {}, entries=self.entries)
            if inferred.contradictions:
                raise NestedContradiction(inferred.contradictions)
            for entry, shape in inferred.shapes.items():
                self._know(entry.name, entry, shape)
            for memory in prop.memories:
                self._hand_on(memory)
            if self.entries == before:
                return

    def _result(self) -> PartialInference:
        prop, shapes = self.prop, self.entries

        def outer(entry: NodeEntry, rows: int | None) -> PartialShape:
            shape = shapes.get(entry)
            return None if shape is None else (rows, *shape)

        def block(memory: RecurrentMemory) -> PartialShape:
            entry = NodeEntry(prop.variable(memory.name))
            return shapes.get(entry) if memory.offset == 1 else outer(entry, memory.offset)

        blocks = {memory.name: block(memory) for memory in prop.memories}
        arguments: dict[str, PartialShape] = {
            name: outer(NodeEntry(prop.variable(name)), self.steps)
            for name in prop.parameters.sequences
        }
        arguments |= {memory.name: blocks[memory.name] for memory in prop.memories}
        arguments |= {name: shapes.get(NodeEntry(prop.variable(name))) for name in prop.others}
        lengths: PartialShape = unify(
            SEQUENCE_LENGTH, self.given.get(SEQUENCE_LENGTH), (None,), "one number for each record"
        )
        for name in prop.parameters.valid:
            valid = shapes.get(NodeEntry(prop.variable(name)))
            lengths = unify(SEQUENCE_LENGTH, lengths, valid, "the records of the body")
        arguments[SEQUENCE_LENGTH] = lengths
        finals = [blocks[memory.name] for memory in prop.memories if memory.is_final]
        return PartialInference(
            [arguments[name] for name in prop.list_arguments()],
            [*(outer(head, self.steps) for head in prop.stacked), *finals],
            [],
        )


def _nested(
    node: Node, problem: str, contradiction: ShapeContradiction, hint: str
) -> NestedContradiction:
    """Return the contradiction of a memory's shapes."""
    expected, got = str(contradiction.inferred), str(contradiction.given)
    return NestedContradiction([Diagnostic(problem, node.place, expected, got, hint=hint)])


def _row(memory: RecurrentMemory, shape: PartialShape) -> PartialShape:
    """Return the shape of a memory in one step, given that of its first or last values."""
    return shape if memory.offset == 1 else _inner(memory.name, shape)


def _inner(name: str, shape: PartialShape) -> PartialShape:
    """Return the shape of one step's tensor."""
    if shape == ():
        unify(name, shape, (None,), "steps on the first axis")
    return None if shape is None else shape[1:]
