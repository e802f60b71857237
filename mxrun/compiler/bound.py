"""Plans of executors: arguments, states, gradients and outputs lie in memory given from outside.

Outputs and gradients get pinned tensors beside those of the variables, so that everything that an
executor shares with others lies in the pinned region. The training phase is the forward pass, then
the backward pass with the requested gradients as its results; nothing is updated but the states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.once import cached_property
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_graphs, forward_graph
from mxrun.compiler.request import CompileRequest
from mxrun.graph.gradient import gradient
from mxrun.graph.graph import STATES, Graph, GraphBuilder, MemoryClass, Step, StepKind, ValueId
from mxrun.graph.infer import infer
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol
from mxrun.graph.trainability import reached
from mxrun.graph.update_rule import accumulated
from mxrun.operator.kernel import OpReqType
from mxrun.operator.register import create
from mxrun.passes.batch_norm_state import batch_norm_state
from mxrun.passes.carried_states import carried_states
from mxrun.passes.dead_code import eliminate_dead_code
from mxrun.passes.pinned_results import PinnedTensor, pinned_results
from mxrun.passes.split_backward import split_backward
from mxrun.passes.updates import accumulate, hoist_updates
from mxrun.planner.plan import Plan

Range: TypeAlias = "tuple[int, int]"
"""Bytes [begin, end) of a plan."""


@dataclass(frozen=True)
class BoundRequest:
    """Symbol to plan for an executor.

    variables: spec of every variable by name. inputs: names of the variables that are io slots.
    gradients: WRITE or ADD for each variable whose gradient is wanted. fuse: if false, every node
    is a step of its own and every tensor is contiguous, to be looked at.
    """

    symbol: Symbol
    variables: Mapping[str, TensorSpec]
    inputs: Collection[str]
    gradients: Mapping[str, OpReqType]
    device: DeviceDescription
    fuse: bool = True


@dataclass(frozen=True)
class BoundPlan:
    """Plan of an executor, and the pinned tensors of what it returns.

    outputs: that of each output. head_gradients: by the position of an output, the one that takes
    its gradient; a loss and an output that no wanted gradient depends on have none. gradients: by
    variable; `zero` names the variables whose gradient is zero because no output depends on them.
    """

    plan: Plan
    outputs: tuple[str, ...]
    head_gradients: Mapping[int, str]
    gradients: Mapping[str, str]
    zero: tuple[str, ...]

    @cached_property
    def repeats_backward(self) -> bool:
        """Whether the backward pass overwrites nothing that it reads from the forward pass.

        It can then be repeated. Where tensors are parts of others it counts as if it did.
        """
        phase = self.plan.phases[TRAIN]
        _, steps = self.passes
        made = {value for step in steps for value in step.writes}
        # Sources are variables, which backward does not change, and running sums, which it shall.
        read = {value for step in steps for value in step.reads} - made
        read -= {*phase.graph.sources.values()}
        workspaces = [
            (begin := phase.scratch[step.name], begin + step.kernel.workspace_bytes)
            for step in steps
            if step.kernel is not None and step.kernel.workspace_bytes
        ]

        def ranges(values: Collection[ValueId]) -> list[Range]:
            placed = ((phase.offsets[v], phase.graph.spec(v)) for v in values if v in phase.offsets)
            return [(begin, begin + spec.nbytes) for begin, spec in placed if spec.nbytes]

        return not phase.parts and not _overlap(ranges(read), [*ranges(made), *workspaces])

    @cached_property
    def passes(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Steps of TRAIN's forward and of its backward pass, in order."""
        graph = self.plan.phases[TRAIN].graph
        states = {
            value for value in graph.sources.values() if graph.values[value].memory_class in STATES
        }
        entering = {graph.sources[name] for name in self.head_gradients.values()}
        forward = forward_steps(graph.steps, states, entering)
        names = {step.name for step in forward}
        return forward, tuple(step for step in graph.steps if step.name not in names)


def _overlap(some: list[Range], others: list[Range]) -> bool:
    """Return whether a range [begin, end) of bytes has a byte in common with one of the others."""
    return any(
        begin < other_end and other_begin < end
        for begin, end in some
        for other_begin, other_end in others
    )


def compile_bound(request: BoundRequest) -> BoundPlan:
    """Return the plan of an executor's phases: TRAIN and EVALUATE.

    Raises UserError for a network that cannot be planned, or that has no gradient for a variable
    whose gradient is wanted.
    """
    symbol = _with_own_heads(request.symbol)
    shapes = {name: spec.shape for name, spec in request.variables.items()}
    types = {name: spec.dtype for name, spec in request.variables.items()}
    inference = infer(symbol.heads, shapes, types)
    options = CompileRequest(
        {name: request.variables[name] for name in request.inputs},
        device=request.device,
        fuse=request.fuse,
        join=request.fuse,
        add_to=request.fuse,
    )
    heads = [head.name for head in symbol.heads]
    outputs = _output_names(request.symbol)
    training = _TrainingGraph(request, forward_graph(symbol, options, inference, True), heads)
    graphs = {
        TRAIN: training.graph,
        EVALUATE: _evaluation(forward_graph(symbol, options, inference, False), heads),
    }
    pinned = {
        head: PinnedTensor(name, MemoryClass.IO) for head, name in zip(heads, outputs, strict=True)
    }
    written = {name: PinnedTensor(name, MemoryClass.GRADIENTS) for name in training.written}
    targets = {TRAIN: {**pinned, **written}, EVALUATE: pinned}
    plan = compile_graphs(graphs, options, partial(_pinned, targets, request.device))
    return BoundPlan(
        plan,
        tuple(outputs),
        training.head_gradients,
        {name: accumulated(name) for name in training.reached},
        tuple(name for name in request.gradients if name not in training.reached),
    )


def _pinned(
    targets: Mapping[str, Mapping[str, PinnedTensor]],
    device: DeviceDescription,
    phase: str,
    graph: Graph,
) -> Graph:
    return pinned_results(graph, targets[phase], device)


def _evaluation(graph: Graph, heads: list[str]) -> Graph:
    results = {head: graph.results[head] for head in heads}
    graph = hoist_updates(carried_states(replace(graph, results=results)))
    return eliminate_dead_code(graph)


class _TrainingGraph:
    """Forward and backward steps of a request.

    reached: variables with a gradient. written: results with the gradients that are not added.
    """

    def __init__(self, request: BoundRequest, forward: Graph, heads: list[str]) -> None:
        self._request = request
        self._builder = GraphBuilder(
            replace(forward, results={head: forward.results[head] for head in heads})
        )
        entering = self._entering(heads) if request.gradients else {}
        forward = self._builder.build()
        values = {forward.results[heads[position]]: value for position, value in entering.items()}
        self.reached = reached(forward, list(request.gradients), values)
        self.written: list[str] = []
        graph = forward
        if self.reached:
            differentiated = gradient(forward, self.reached, values)
            graph = self._with_gradients(
                split_backward(differentiated.graph), differentiated.gradients
            )
        graph = eliminate_dead_code(hoist_updates(carried_states(batch_norm_state(graph))))
        # The gradient of a variable may be that of an output itself.
        read = {value for step in graph.steps for value in step.reads} | {*graph.results.values()}
        used = {position: value for position, value in entering.items() if value in read}
        names = {value: name for name, value in graph.sources.items()}
        self.head_gradients = {position: names[value] for position, value in used.items()}
        unused = {*entering.values()} - {*used.values()}
        sources = {name: value for name, value in graph.sources.items() if value not in unused}
        self.graph = replace(graph, sources=sources)

    def _entering(self, heads: list[str]) -> dict[int, ValueId]:
        """Return a source for the gradient of each output that may need one, by position."""
        found = {}
        for position, head in enumerate(self._request.symbol.heads):
            spec = self._builder.values[self._builder.results[heads[position]]].spec
            is_loss = head.node.prop is not None and head.node.prop.loss_output is not None
            if spec.dtype.startswith("float") and not is_loss:
                name = f"{heads[position]}:head_grad"
                found[position] = self._builder.source(name, spec, MemoryClass.IO)
        return found

    def _with_gradients(self, graph: Graph, gradients: Mapping[str, ValueId]) -> Graph:
        """Return the graph that adds the gradients to running sums, or has them as results."""
        requests = self._request.gradients
        added = {n: gradients[n] for n in self.reached if requests[n] is OpReqType.ADD}
        others = {accumulated(n): gradients[n] for n in self.reached if n not in added}
        self.written = [*others]
        return accumulate(graph.with_results(others), added)[0]


def _output_names(symbol: Symbol) -> list[str]:
    """Return the names of the pinned tensors of the outputs, all different."""
    names: list[str] = []
    for head in symbol.heads:
        name = f"{head.name}:out"
        names.append(name if name not in names else f"{name}{len(names)}")
    return names


def _with_own_heads(symbol: Symbol) -> Symbol:
    """Return the symbol with a copy for each output that has no step of its own.

    These are variables, views of other tensors, and outputs that are listed twice.
    """
    taken: set[NodeEntry] = set()
    heads = []
    for position, head in enumerate(symbol.heads):
        prop = head.node.prop
        if prop is None or prop.is_view or head in taken:
            copy = Node(f"{head.name}:copy{position}", create("_copy", {}), (head,))
            head = NodeEntry(copy)
        taken.add(head)
        heads.append(head)
    return Symbol(heads)


def forward_steps(
    steps: Sequence[Step], states: Collection[ValueId], entering: Collection[ValueId]
) -> tuple[Step, ...]:
    """Return the steps of a training phase that belong to its forward pass, in a valid order.

    states: the sources that hold auxiliary states. Their updates, which a schedule may put behind
    backward steps, come last: they need what the forward steps have made, and no workspace.
    entering: the sources that take the gradients of outputs; a step that copies one, which a
    schedule may put before all others, belongs to the backward pass.
    """
    kinds = [step.kind for step in steps]
    end = kinds.index(StepKind.BACKWARD) if StepKind.BACKWARD in kinds else len(steps)
    forward = [step for step in steps[:end] if not any(value in entering for value in step.reads)]
    read, made_later = set[ValueId](), {value for step in steps[end:] for value in step.writes}
    for step in steps[end:]:
        overwritten = {value for value in step.reads if value in states}
        has_workspace = step.kernel is None or bool(step.kernel.workspace_bytes)
        is_free = made_later.isdisjoint(step.reads) and overwritten.isdisjoint(read)
        if step.kind is StepKind.UPDATE and overwritten and is_free and not has_workspace:
            forward.append(step)
            made_later.difference_update(step.writes)
        else:
            read.update(step.reads)
    return tuple(forward)
