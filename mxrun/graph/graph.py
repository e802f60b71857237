"""Graph: values in single assignment and the steps that compute them, in execution order.

A symbol is lowered to a Graph once all shapes are known. Passes turn one Graph into the next. A
Graph is frozen, so a pass can be tested alone and its result verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import Enum

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError, SourceLocation
from mxrun.base.layer_options import DEFAULTS, LayerOptions
from mxrun.base.once import cached_property
from mxrun.base.tensor import ALIGNMENT, TensorSpec, align
from mxrun.operator.kernel import Kernel, OpReqType
from mxrun.operator.register import AnyProperty

ValueId = int
StepName = str


class MemoryClass(Enum):
    """Purpose of a tensor; the columns of `inspect-memory`."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    AUXILIARY = "auxiliary"
    # States that each run leaves for the next: of recurrences, caches of earlier positions.
    CARRIED = "carried"
    # Computed once from parameters and states that no longer change.
    CONSTANTS = "constants"
    ACTIVATIONS = "activations"
    ACTIVATION_GRADIENTS = "activation_gradients"
    WORKSPACE = "workspace"
    IO = "io"


# Classes of the auxiliary states of operators.
STATES = (MemoryClass.AUXILIARY, MemoryClass.CARRIED)


class StepKind(Enum):
    """Kind of a step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    REORDER = "reorder"


# Titles of in-place updates, by the suffix of their names.
_UPDATES = {"average:update": "moving average", "accumulate": "summed gradient"}


@dataclass(frozen=True)
class Value:
    """Tensor that is written by exactly one step, or is a source of the graph."""

    name: str
    spec: TensorSpec
    memory_class: MemoryClass


@dataclass(frozen=True)
class Iteration:
    """Iteration `number` of the unrolled recurrence whose first step has the order `recurrence`."""

    recurrence: int
    number: int


@dataclass(frozen=True)
class Step:
    """Application of an operator.

    inputs: of a backward step `out_grad + in_data + out_data` in the operator's order, None where
    the property declares no read; its outputs are the gradients of the operator's inputs. kernel:
    the selected implementation, after `select`; then `inputs` and `outputs` follow the kernel's
    specs (a forward kernel's extra outputs come last).
    """

    name: StepName
    kind: StepKind
    prop: AnyProperty | None
    inputs: tuple[ValueId | None, ...]
    outputs: tuple[ValueId | None, ...]
    requests: tuple[OpReqType, ...]
    # Values to which the outputs with the add-to request are added; they share memory.
    added_to: tuple[ValueId, ...] = ()
    # Forward step of a backward step.
    forward: StepName | None = None
    # Original of a repeated step (rematerialisation).
    repeats: StepName | None = None
    # Those of the layer; of a view the precision may be FLOAT32, of a backward step it is None.
    options: LayerOptions = DEFAULTS
    # Position of a forward step in the original network.
    order: int = 0
    # Iterations of the unrolled recurrences that the step belongs to, the outermost first.
    iterations: tuple[Iteration, ...] = ()
    # Name of the step's random stream; its own name if None.
    stream: str | None = None
    # Of a fused step: (order, argument) at which the original network reads each of its arguments.
    readings: tuple[tuple[int, int], ...] = ()
    place: SourceLocation | None = None
    # Of a backward step that is a loop: the value of which each output is the gradient.
    gradients_of: tuple[ValueId, ...] = ()
    # Whether the step was part of a loop whose iterations would all compute the same.
    hoisted: bool = False
    kernel: Kernel | None = None
    # Of a step that is a loop: its body, from which its kernel is planned.
    loop: GraphLoop | None = None

    @property
    def title(self) -> str:
        """Description of the step in messages: its operation, and the layer or variable."""
        whose, _, role = (self.repeats or self.forward or self.name).partition(":")
        if self.kind is StepKind.REORDER:
            return f"another layout of {whose!r}"
        if self.kind is StepKind.UPDATE:
            return f"{_UPDATES.get(role, role)} of {whose!r}"
        if self.kind is StepKind.BACKWARD and self.forward is None:
            return f"sum of the gradients of {whose!r}"
        is_named = self.prop is not None and not self.prop.is_internal
        title = f"{self.prop.type_string} {whose!r}" if self.prop and is_named else repr(whose)
        if self.kind is StepKind.BACKWARD:
            return f"backward of {title}"
        return f"repeated {title}" if self.repeats else title

    @property
    def is_view(self) -> bool:
        """Whether output 0 is input 0's memory under another shape."""
        if self.kernel is not None:
            return self.kernel.is_view
        return self.prop is not None and self.prop.is_view

    @cached_property
    def reads(self) -> tuple[ValueId, ...]:
        """Values that the step reads; those under the add-to request come last."""
        return (*(value for value in self.inputs if value is not None), *self.added_to)

    @cached_property
    def writes(self) -> tuple[ValueId, ...]:
        """Values that the step writes."""
        return tuple(value for value in self.outputs if value is not None)

    @cached_property
    def in_place_hints(self) -> tuple[tuple[ValueId, ValueId], ...]:
        """Pairs (read, written) of values that may share memory, as operator and kernel declare.

        Pairs with an absent value are left out.
        """
        if self.prop is None or self.kernel is None or self.kernel.is_view:
            return ()
        arguments = len(self.prop.list_arguments())
        outputs = len(self.prop.list_outputs())
        if self.forward is None:
            pairs = self.prop.forward_inplace_option(
                list(self.inputs[:arguments]), list(self.outputs[:outputs])
            )
        else:
            pairs = self.prop.backward_inplace_option(
                list(self.inputs[:outputs]),
                list(self.inputs[outputs : outputs + arguments]),
                list(self.inputs[outputs + arguments : 2 * outputs + arguments]),
                list(self.outputs),
            )
        first = len(self.kernel.outputs)
        scratch = [(self.inputs[a], self.outputs[first + b]) for a, b in self.kernel.in_place]
        return tuple(
            (source, target)
            for source, target in (*pairs, *scratch)
            if source is not None and target is not None
        )


@dataclass(frozen=True)
class Within:
    """Place of a source in another pinned tensor; begin: bytes from its beginning."""

    tensor: str
    begin: int


@dataclass(frozen=True)
class Graph:
    """Values, steps in execution order, and the external names of values.

    sources: values that exist before the first step (inputs, parameters, states). results: values
    that must still exist after the last step. mutations: {new version: old version} of values that
    an update overwrites or a step adds to. within: sources that are parts of other pinned
    tensors. is_train: if true, forward steps run in training mode.
    alignment: multiple of bytes at which its blocks begin; that of the device once kernels are
    selected.
    """

    values: tuple[Value, ...] = ()
    steps: tuple[Step, ...] = ()
    sources: Mapping[str, ValueId] = field(default_factory=dict)
    results: Mapping[str, ValueId] = field(default_factory=dict)
    mutations: Mapping[ValueId, ValueId] = field(default_factory=dict)
    is_train: bool = False
    alignment: int = ALIGNMENT
    within: Mapping[str, Within] = field(default_factory=dict)

    def producer(self) -> dict[ValueId, Step]:
        """Return the step that writes each value; sources have none."""
        return {value: step for step in self.steps for value in step.writes}

    def spec(self, value: ValueId) -> TensorSpec:
        """Return the spec of a value."""
        return self.values[value].spec

    def block_bytes(self, value: ValueId) -> int:
        """Return the bytes of a block for a value."""
        return align(self.spec(value).nbytes, self.alignment)

    def roots(self) -> list[ValueId]:
        """Return for each value the first value in its memory, by views and mutations alone."""
        root = list(range(len(self.values)))
        for step in self.steps:
            if step.is_view:
                root[step.writes[0]] = root[step.reads[0]]
            for value in step.writes:
                if value in self.mutations:
                    root[value] = root[self.mutations[value]]
        return root

    def with_results(self, results: Mapping[str, ValueId]) -> Graph:
        """Return the graph with further results."""
        return replace(self, results={**self.results, **results})


@dataclass(frozen=True)
class Slice:
    """Part of a tensor of the enclosing graph that one iteration reads or writes.

    tensor: number among the loop's inputs; in `GraphLoop.writes`, among its outputs. begin: bytes
    from the tensor's beginning in the first iteration. stride: bytes from one iteration to the
    next; 0 for a tensor that every iteration uses, such as a weight.
    """

    tensor: int
    begin: int = 0
    stride: int = 0


@dataclass(frozen=True, eq=False)
class GraphLoop:
    """Graph that runs `count` times, one iteration after the other, as one step of another graph.

    The iterations differ only in the places of the tensors that they read from and write to the
    enclosing graph. A state that passes from one iteration to the next is a slice of a tensor that
    one iteration writes and the next one reads, one stride further:

        history [count + 1, batch, hidden]; row 0 is the initial state
        reads   state: history from row 0 on, one row further in every iteration
        writes  next:  history from row 1 on, one row further in every iteration

    Or every iteration overwrites the state, if the body does so as well (`body.mutations`):

        total [hidden]
        reads   sum:  total, stride 0
        writes  next: total, stride 0; the new version of `sum` in the body

    Otherwise nothing that an iteration writes may overlap with what it reads.

    count: at least 1. body: its sources and results are the tensors of one iteration. Its results
    are float32 where its steps compute in bfloat16. reads: the place of each source. writes: the
    place of each result that the enclosing graph needs. inputs, outputs: specs of the enclosing
    graph's tensors, in plain layout and with the dtypes of the body's. An output that is also read,
    such as a history, is the new version of the input that holds its first row (`Graph.mutations`).
    limit: number among `inputs` of a tensor [1] of int64; at most so many iterations run, the first
    ones, or the last ones if `from_end`.
    """

    count: int
    body: Graph
    reads: Mapping[str, Slice]
    writes: Mapping[str, Slice]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    limit: int | None = None
    from_end: bool = False


class GraphBuilder:
    """Mutable collection of values and steps for the next Graph."""

    def __init__(self, graph: Graph) -> None:
        self.values = list(graph.values)
        self.steps = list(graph.steps)
        self.sources = dict(graph.sources)
        self.results = dict(graph.results)
        self.mutations = dict(graph.mutations)
        self.within = dict(graph.within)
        self._graph = graph

    def value(self, name: str, spec: TensorSpec, memory_class: MemoryClass) -> ValueId:
        """Add a value that a step will write."""
        self.values.append(Value(name, spec, memory_class))
        return len(self.values) - 1

    def source(self, name: str, spec: TensorSpec, memory_class: MemoryClass) -> ValueId:
        """Add a source, or return the existing one of this name.

        Raises InternalError if the name has another spec or memory class. Generated names contain a
        colon, which a user's names cannot.
        """
        if name not in self.sources:
            self.sources[name] = self.value(name, spec, memory_class)
        known = self.values[self.sources[name]]
        if (known.spec, known.memory_class) != (spec, memory_class):
            raise InternalError(f"two tensors are named {name!r}")
        return self.sources[name]

    def slice_of(self, name: str, begin: int, end: int) -> ValueId:
        """Add the elements from `begin` to `end` of a source, in row-major order, as a source."""
        whole = self.values[self.sources[name]]
        spec = TensorSpec((end - begin,), whole.spec.dtype)
        width = whole.spec.nbytes // whole.spec.elements
        self.within[f"{name}:own"] = Within(name, begin * width)
        return self.source(f"{name}:own", spec, whole.memory_class)

    def step(self, step: Step) -> None:
        """Append a step."""
        self.steps.append(step)

    def build(self) -> Graph:
        """Return the graph collected so far."""
        return replace(
            self._graph,
            values=tuple(self.values),
            steps=tuple(self.steps),
            sources=self.sources,
            results=self.results,
            mutations=self.mutations,
            within=self.within,
        )


def forward_count(steps: Sequence[Step]) -> int:
    """Return the number of steps before the first backward step; 0 if there is no backward step."""
    kinds = [step.kind for step in steps]
    return kinds.index(StepKind.BACKWARD) if StepKind.BACKWARD in kinds else 0


def writes(outputs: Sequence[ValueId | None]) -> tuple[OpReqType, ...]:
    """Return the default request for each output: write, or null if it is absent."""
    return tuple(OpReqType.NULL if value is None else OpReqType.WRITE for value in outputs)
