"""Prepared operators: plans of one step, bound to other memory in every call.

The plan is made for the specs of the inputs, as a step of a network is, and kept. A call only says
where its inputs and outputs are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from mxrun.base.context import Context
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import PLAIN, Layout, Shape, TensorSpec
from mxrun.compiler.external import ForwardPlan, Plan, plan_forward
from mxrun.device.interface import Device, MovableProgram
from mxrun.device.resources import temp_space_of
from mxrun.executor.bind import program_steps
from mxrun.graph.graph import Graph
from mxrun.graph.infer import infer
from mxrun.graph.lower import RANDOM_STATE, lower
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol
from mxrun.operator.kernel import Kernel
from mxrun.operator.launch import TensorPlace
from mxrun.operator.property import OperatorProperty
from mxrun.operator.register import AnyProperty
from mxrun.runtime.engine.interface import EngineOperator, RunContext

# An operator that reads and writes fewer bytes runs on the calling thread: handing it to a worker
# takes longer. So does one with fewer floating-point operations.
SHORT_BYTES = 32_768
_SHORT_FLOPS = 100_000
# So does one that is bound by memory and reads and writes fewer bytes, if nothing else uses its
# arrays: handing it over and waiting for it takes 25 us, and its result leaves the cache.
_BRIEF_BYTES = 64 << 20


class PreparedProgram:
    """Program of a plan for memories that differ from run to run.

    Several threads may run it at once: each takes an instance, of which there are as many as ever
    ran at once. They share the temporary space of the context. is_short: whether a run takes less
    time than handing it to another thread.
    """

    def __init__(
        self, plan: Plan, device: Device, context: Context, is_short: bool = False
    ) -> None:
        self.plan, self.device, self.is_short = plan, device, is_short
        self._temporary_bytes = plan.reusable_bytes
        if self._temporary_bytes:
            self._space = temp_space_of(context)
        self._is_asynchronous = not device.has_host_memory
        self._idle: list[MovableProgram] = []

    def run(self, places: Sequence[TensorPlace], run_context: RunContext) -> None:
        """Run with the plan's memories at `places`."""
        try:
            instance = self._idle.pop()
        except IndexError:
            instance = self._instance()
        try:
            if self._temporary_bytes:
                self._run_with_space(instance, places)
            else:
                instance.run(places)
                if self._is_asynchronous:
                    self.device.synchronise()
        finally:
            self._idle.append(instance)

    def _run_with_space(self, instance: MovableProgram, places: Sequence[TensorPlace]) -> None:
        space = self._space.acquire(self._temporary_bytes)
        try:
            instance.run([*places, space])
            if self._is_asynchronous:
                self.device.synchronise()
        finally:
            self._space.release(space)

    def _instance(self) -> MovableProgram:
        make = partial(program_steps, self.plan, self.device)
        count = len(self.plan.pinned) + (self._temporary_bytes > 0)
        return self.device.bind_movable(make, count, self.is_short)


class OutputSpec:
    """Shape, dtype and layout (None for plain) of an array that a call makes, and its bytes."""

    __slots__ = ("dtype", "layout", "nbytes", "shape")

    def __init__(self, spec: TensorSpec) -> None:
        self.shape: Shape = spec.shape
        self.dtype, self.nbytes = spec.dtype, spec.nbytes
        is_plain = spec.same_bytes(spec.with_layout(PLAIN))
        self.layout: Layout | None = None if is_plain else spec.layout


class ConvertedOperator:
    """Operator that is called with other dtypes: `dtypes` by the positions of the arguments."""

    __slots__ = ("dtypes",)
    is_pure = False

    def __init__(self, dtypes: Mapping[int, str]) -> None:
        self.dtypes = dtypes


class CallArguments:
    """Places of the tensors of a call, which `run` passes to the prepared operator."""

    __slots__ = ("_run", "places")

    def __init__(self, prepared: PreparedOperator) -> None:
        # With the program's own order of memories there is nothing to do before it.
        self._run = prepared.program.run if prepared.order is None else prepared.run
        self.places: Sequence[TensorPlace] = ()

    def run(self, run_context: RunContext) -> None:
        """Run the operator."""
        self._run(self.places, run_context)


class PreparedCall(EngineOperator):
    """Call of a prepared operator; one that is complete can be made anew with other arguments."""

    __slots__ = ("arguments",)

    def __init__(self, prepared: PreparedOperator, context: Context) -> None:
        self.arguments = CallArguments(prepared)
        super().__init__(self.arguments.run, name=prepared.name, context=context)


class PreparedOperator:
    """Operator with parameters, prepared for the specs of its inputs.

    name: for messages and traces. order: for each memory of the program its position among the
    inputs, the random state, the outputs and the extra outputs of a call; None if that order is the
    program's. visible: number of outputs that a call returns; further kept ones are only for
    backward. updated: positions of the inputs that a call changes. is_pure: whether it changes
    none and draws no random numbers. is_short: whether it takes less time to run than to hand to a
    worker. is_brief: whether the calling thread may as well run it. result_bytes: of the outputs
    and extra outputs. idle: complete calls. graph, step: as they were before the kernel was
    selected. inputs, output_specs: of all inputs and outputs, kept or not. selected: the kernel;
    None for a view. read_data, read_outputs: positions of the arguments and outputs that backward
    reads.
    """

    def __init__(
        self,
        prop: AnyProperty,
        inputs: Sequence[TensorSpec],
        device: Device,
        context: Context,
        is_train: bool,
        is_recorded: bool,
        plain: bool,
    ) -> None:
        self.prop, self.device, self.context = prop, device, context
        self.inputs = tuple(inputs)
        self.name = prop.type_string
        self.graph, names = _forward_graph(prop, inputs, is_train)
        (self.step,) = self.graph.steps
        self.visible = prop.num_visible_outputs
        kept = [*range(self.visible), *(_read_outputs(prop, self.visible) if is_recorded else ())]
        forward = plan_forward(self.graph, device.description, kept, is_recorded, plain)
        plan = forward.plan
        self.kept = tuple(kept)
        self.output_specs = tuple(
            self.graph.spec(value) if name is None else plan.specs[name]
            for value, name in zip(self.step.writes, forward.outputs, strict=True)
        )
        self.is_random = RANDOM_STATE in plan.specs
        results = [name for name in forward.outputs if name is not None]
        call = [*names, *([RANDOM_STATE] if self.is_random else ()), *results, *forward.extra]
        order = tuple(call.index(name) for name in plan.specs)
        self.order = None if order == tuple(range(len(call))) else order
        self.outputs = tuple(OutputSpec(plan.specs[name]) for name in (*results, *forward.extra))
        self.visible_outputs = self.outputs[: self.visible]
        self.updated = _updated(prop, is_train, len(names))
        self.is_short = _is_short(plan)
        self.is_brief = device.has_host_memory and _is_brief(plan)
        self.result_bytes = sum(spec.nbytes for spec in self.outputs)
        self.idle: list[PreparedCall] = []
        self.is_pure = not (self.updated or self.is_random)
        self.program = PreparedProgram(plan, device, context, self.is_short)
        self.selected = forward.selected
        self.in_place = _in_place(forward, names, results)
        reads = _declared(prop)
        self.read_data = frozenset(index for group, index in reads if group == 1)
        self.read_outputs = frozenset(index for group, index in reads if group == 2)

    def run(self, places: Sequence[TensorPlace], run_context: RunContext) -> None:
        """Run with inputs, random state, outputs and extra outputs at `places`."""
        order = self.order
        if order is not None:
            places = [places[index] for index in order]
        self.program.run(places, run_context)


def _forward_graph(
    prop: AnyProperty, inputs: Sequence[TensorSpec], is_train: bool
) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph of one step, and the names of its inputs."""
    names = (*prop.list_arguments(), *prop.list_auxiliary_states())
    if len(inputs) != len(names):
        raise UserError(
            Diagnostic(
                f"{prop.type_string} is called with {len(inputs)} arrays",
                expected=f"{len(names)}: {', '.join(names)}",
            )
        )
    _require_one_dtype(prop, names, inputs)
    variables = tuple(NodeEntry(Node(name)) for name in names)
    node = Node(prop.type_string, prop, variables)
    given = dict(zip(names, inputs, strict=True))
    inference = infer(
        [NodeEntry(node)],
        {name: spec.shape for name, spec in given.items()},
        {name: spec.dtype for name, spec in given.items()},
    )
    symbol = Symbol(NodeEntry(node, index) for index in range(node.num_outputs))
    graph = lower(symbol, inference, prop.list_arguments(), is_train)
    values = list(graph.values)
    for name, spec in given.items():
        value = graph.sources[name]
        if values[value].spec.shape != spec.shape:
            raise UserError(f"{prop.type_string}: {name} has shape {spec.shape}")
        values[value] = type(values[value])(name, spec, values[value].memory_class)
    return Graph(
        tuple(values), graph.steps, graph.sources, {}, graph.mutations, graph.is_train
    ), names


def _require_one_dtype(
    prop: AnyProperty, names: Sequence[str], inputs: Sequence[TensorSpec]
) -> None:
    """Raise UserError if arguments that share one dtype differ; bfloat16 may stand beside float32.

    An operator with a rule of its own checks its arguments itself.
    """
    if type(prop).infer_type is not OperatorProperty.infer_type:
        return
    shared = [
        (name, spec.dtype)
        for name, spec in zip(prop.list_arguments(), inputs, strict=False)
        if prop.shares_dtype(name)
    ]
    dtypes = {dtype for _, dtype in shared}
    if len(dtypes) > 1 and not dtypes <= {FLOAT32, BFLOAT16}:
        raise UserError(
            Diagnostic(
                f"{prop.type_string} is called with arrays of several dtypes",
                expected="one dtype",
                got=", ".join(f"{name} {dtype}" for name, dtype in shared),
                hint="convert with Cast",
            )
        )


def integer_arguments(prop: AnyProperty, inputs: Sequence[TensorSpec]) -> dict[int, str]:
    """Return the dtypes of floating arguments that are integers by default, by position.

    Such are labels and ids, floats in MXNet, which compiled kernels read as integers.
    """
    given: list[str | None] = [spec.dtype for spec in inputs[: len(prop.list_arguments())]]
    decided = prop.types_of_shapes([spec.shape for spec in inputs[: len(given)]])
    found = {}
    for index, (dtype, known) in enumerate(zip(given, decided, strict=True)):
        if dtype is not None and dtype.startswith("float"):
            # What is integer beside others of its own dtype is so whatever the others are.
            others: list[str | None] = [dtype] * len(given)
            others[index] = known
            completed, _ = prop.infer_type(others, [None] * len(prop.list_outputs()))
            default = completed[index]
            if default is not None and "int" in default:
                found[index] = default
    return found


def _read_outputs(prop: AnyProperty, first: int) -> list[int]:
    """Return the positions of the outputs from `first` on that backward reads."""
    return [index for group, index in _declared(prop) if group == 2 and index >= first]


def _declared(prop: AnyProperty) -> list[tuple[int, int]]:
    """Return what backward reads: 1 and the number of an argument, 2 and that of an output."""
    groups = (len(prop.list_outputs()), len(prop.list_arguments()), len(prop.list_outputs()))
    marks = [[(group, index) for index in range(size)] for group, size in enumerate(groups)]
    return prop.declare_backward_dependency(*marks)


def _updated(prop: AnyProperty, is_train: bool, count: int) -> tuple[int, ...]:
    """Return the positions of the inputs that a call overwrites."""
    visible = prop.num_visible_outputs
    states = [source for source, output in prop.list_mutated_inputs().items() if output >= visible]
    named = {carried.state for carried in prop.list_carried_states()}
    if is_train:
        named |= {update.state for update in prop.list_state_updates()}
    arguments = len(prop.list_arguments())
    states += [
        arguments + index
        for index, name in enumerate(prop.list_auxiliary_states())
        if name in named
    ]
    return tuple(states)


def _in_place(
    forward: ForwardPlan, names: Sequence[str], results: Sequence[str]
) -> frozenset[tuple[int, int]]:
    """Return the pairs (input, output) of positions that may be one place."""
    return frozenset(
        (names.index(source), results.index(result))
        for source, result in forward.in_place
        if source in names and result in results
    )


def _is_short(plan: Plan) -> bool:
    nbytes, flops = _work_of(plan)
    return nbytes < SHORT_BYTES and flops < _SHORT_FLOPS and _is_native(plan)


def _is_brief(plan: Plan) -> bool:
    nbytes, flops = _work_of(plan)
    return flops <= nbytes < _BRIEF_BYTES and _is_native(plan)


def _work_of(plan: Plan) -> tuple[int, int]:
    """Return the bytes that the kernels move, and their floating-point operations."""
    kernels = _kernels_of(plan)
    return sum(kernel.bytes_moved for kernel in kernels), sum(kernel.flops for kernel in kernels)


def _is_native(plan: Plan) -> bool:
    return all(kernel.implementation != "numpy" for kernel in _kernels_of(plan))


def _kernels_of(plan: Plan) -> list[Kernel]:
    return [step.kernel for step in plan.phases[TRAIN].steps if step.kernel is not None]
