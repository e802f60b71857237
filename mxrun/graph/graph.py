"""The planner's view of a network: values in single assignment and the steps that make them.

A symbol becomes a Graph when every shape is known. Passes turn one Graph into the next; each is a
frozen value, so a pass can be tested alone and verified after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from mxrun.base.errors import InternalError, SourceLocation
from mxrun.base.tensor import TensorSpec
from mxrun.operator.kernel import Kernel, OpReqType
from mxrun.operator.register import AnyProperty

ValueId = int
StepName = str


class MemoryClass(Enum):
    """What a tensor is for; the columns of `inspect-memory`."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    AUXILIARY = "auxiliary"
    # Made once of parameters and states that no longer change.
    CONSTANTS = "constants"
    ACTIVATIONS = "activations"
    ACTIVATION_GRADIENTS = "activation_gradients"
    WORKSPACE = "workspace"
    IO = "io"


class StepKind(Enum):
    """What a step does."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    REORDER = "reorder"


# What messages call the steps that change something in place, by the ends of their names.
_UPDATES = {"average:update": "moving average", "accumulate": "summed gradient"}


@dataclass(frozen=True)
class Value:
    """One tensor, written by exactly one step, or given from outside (a source)."""

    name: str
    spec: TensorSpec
    memory_class: MemoryClass


@dataclass(frozen=True)
class Step:
    """One application of an operator.

    inputs of a backward step: `out_grad + in_data + out_data` in the operator's order, None for
    what the property does not declare; its outputs are the gradients of the operator's inputs.
    kernel: the chosen implementation, once `select` has run; then `inputs` and `outputs` follow
    the kernel's specs (a forward kernel's extra outputs come last).
    """

    name: StepName
    kind: StepKind
    prop: AnyProperty | None
    inputs: tuple[ValueId | None, ...]
    outputs: tuple[ValueId | None, ...]
    requests: tuple[OpReqType, ...]
    # The values to which outputs under the add-to request are added, in whose memory they lie.
    added_to: tuple[ValueId, ...] = ()
    # The forward step a backward step belongs to.
    forward: StepName | None = None
    # The step that this one runs again, because what that one made was not kept.
    repeats: StepName | None = None
    implementation: str | None = None
    # The type a forward step is asked to run in, where the network says so.
    precision: str | None = None
    # The place of a forward step in the network as it is written.
    order: int = 0
    # Of a fused step: the place and position at which the network reads each of its arguments.
    readings: tuple[tuple[int, int], ...] = ()
    # Whether the step may become part of a fused one.
    fused: bool = True
    place: SourceLocation | None = None
    kernel: Kernel | None = None

    @property
    def title(self) -> str:
        """What a message calls this step: what runs, and for which layer or variable."""
        whose, _, what = (self.repeats or self.forward or self.name).partition(":")
        if self.kind is StepKind.REORDER:
            return f"another layout of {whose!r}"
        if self.kind is StepKind.UPDATE:
            return f"{_UPDATES.get(what, what)} of {whose!r}"
        if self.kind is StepKind.BACKWARD and self.forward is None:
            return f"sum of the gradients of {whose!r}"
        is_named = self.prop is not None and not self.prop.is_internal
        title = f"{self.prop.type_string} {whose!r}" if self.prop and is_named else repr(whose)
        if self.kind is StepKind.BACKWARD:
            return f"backward of {title}"
        return f"repeated {title}" if self.repeats else title

    @cached_property
    def reads(self) -> tuple[ValueId, ...]:
        """The values this step reads; those that it adds to come last."""
        return (*(value for value in self.inputs if value is not None), *self.added_to)

    @cached_property
    def writes(self) -> tuple[ValueId, ...]:
        """The values this step makes."""
        return tuple(value for value in self.outputs if value is not None)

    @cached_property
    def in_place_hints(self) -> tuple[tuple[ValueId, ValueId], ...]:
        """The values (read, made) that the operator says may share memory, where both are there."""
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
        return tuple(
            (source, target)
            for source, target in pairs
            if source is not None and target is not None
        )


@dataclass(frozen=True)
class Graph:
    """Values, steps in execution order, and the names under which the outside knows values.

    sources: values that exist before the first step (inputs, parameters, states).
    results: values that must still exist after the last step.
    mutations: {new version: old version} of values that an update overwrites or a step adds to.
    is_train: whether forward steps run in training mode.
    """

    values: tuple[Value, ...] = ()
    steps: tuple[Step, ...] = ()
    sources: Mapping[str, ValueId] = field(default_factory=dict)
    results: Mapping[str, ValueId] = field(default_factory=dict)
    mutations: Mapping[ValueId, ValueId] = field(default_factory=dict)
    is_train: bool = False

    def producer(self) -> dict[ValueId, Step]:
        """For each value that a step makes, that step."""
        return {value: step for step in self.steps for value in step.writes}

    def spec(self, value: ValueId) -> TensorSpec:
        """The spec of a value."""
        return self.values[value].spec

    def with_results(self, results: Mapping[str, ValueId]) -> Graph:
        """The same graph with further results."""
        return replace(self, results={**self.results, **results})


class GraphBuilder:
    """Collects values and steps for the next Graph; the only mutable thing in a pass."""

    def __init__(self, graph: Graph) -> None:
        self.values = list(graph.values)
        self.steps = list(graph.steps)
        self.sources = dict(graph.sources)
        self.results = dict(graph.results)
        self.mutations = dict(graph.mutations)
        self._graph = graph

    def value(self, name: str, spec: TensorSpec, memory_class: MemoryClass) -> ValueId:
        """A new value that a step will write."""
        self.values.append(Value(name, spec, memory_class))
        return len(self.values) - 1

    def source(self, name: str, spec: TensorSpec, memory_class: MemoryClass) -> ValueId:
        """A value given from outside; the same one when it exists already.

        Raises InternalError when the name stands for something else. Names of our own contain a
        colon, which a user's cannot.
        """
        if name not in self.sources:
            self.sources[name] = self.value(name, spec, memory_class)
        known = self.values[self.sources[name]]
        if (known.spec, known.memory_class) != (spec, memory_class):
            raise InternalError(f"two tensors are named {name!r}")
        return self.sources[name]

    def step(self, step: Step) -> None:
        """Append a step."""
        self.steps.append(step)

    def build(self) -> Graph:
        """The graph collected so far."""
        return replace(
            self._graph,
            values=tuple(self.values),
            steps=tuple(self.steps),
            sources=self.sources,
            results=self.results,
            mutations=self.mutations,
        )


def forward_count(steps: Sequence[Step]) -> int:
    """How many steps come before the first backward one; none where there is no such step."""
    kinds = [step.kind for step in steps]
    return kinds.index(StepKind.BACKWARD) if StepKind.BACKWARD in kinds else 0


def writes(outputs: Sequence[ValueId | None]) -> tuple[OpReqType, ...]:
    """The plain request for each output: write it, or nothing where it is absent."""
    return tuple(OpReqType.NULL if value is None else OpReqType.WRITE for value in outputs)
