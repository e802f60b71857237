"""Plans whose sources and results are memories outside of the plan: of imperative operators.

A plan of one phase, TRAIN, places its sources in its pinned region, one block each. Results get a
block there too, as new versions of sources with undefined content. What is left, the reusable
region, is temporary space. A program of such a plan takes the memories in the order of the blocks,
then the temporary space, if there is any; it is bound to others in every run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from mxrun.base import flags
from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.verify import verify_graph
from mxrun.graph.gradient import gradient
from mxrun.graph.graph import (
    Graph,
    GraphBuilder,
    MemoryClass,
    Step,
    StepKind,
    StepName,
    Value,
    ValueId,
    writes,
)
from mxrun.graph.phases import TRAIN
from mxrun.operator.register import create
from mxrun.passes.batch_norm_state import batch_norm_state
from mxrun.passes.carried_states import carried_states
from mxrun.passes.dead_code import eliminate_dead_code
from mxrun.passes.select import KernelSelection, SelectedKernel, select
from mxrun.passes.select_recorded import select_backward, select_forward, source_name
from mxrun.passes.split_backward import split_backward
from mxrun.passes.updates import append_update
from mxrun.planner.place import place, place_pinned
from mxrun.planner.plan import Plan
from mxrun.planner.storage import Sharing, assign_storage

__all__ = [
    "ForwardPlan",
    "Plan",
    "SelectedKernel",
    "plan_backward",
    "plan_forward",
    "plan_reorder",
    "source_name",
]

_COPY = "_copy"


@dataclass(frozen=True)
class ForwardPlan:
    """Plan of one forward step.

    results: names of the results by position: the operator's outputs, None for one that is not
    kept, then the extra outputs of its kernel. in_place: pairs (memory, result) that may be one
    place. selected: the kernel, for the backward step; None for a view.
    """

    plan: Plan
    outputs: tuple[str | None, ...]
    extra: tuple[str, ...]
    in_place: frozenset[tuple[str, str]]
    selected: SelectedKernel | None


def plan_forward(
    graph: Graph,
    device: DeviceDescription,
    kept: Collection[int],
    differentiated: bool,
    plain: bool,
) -> ForwardPlan:
    """Plan a graph of one forward step.

    In training, auxiliary states are updated. Hidden outputs by which an update operator overwrites
    its inputs are written to these.

    kept: positions of the outputs that are results. differentiated: whether the kernel's extra
    outputs are results as well, for a backward step. plain: whether results are in plain layout; if
    not, in the layouts in which the kernel produces them. Raises UserError if no kernel accepts the
    step.
    """
    (step,) = graph.steps
    assert step.prop is not None
    graph = replace(graph, results={})
    overwritten = {
        output: source
        for source, output in step.prop.list_mutated_inputs().items()
        if output not in kept
    }
    builder = GraphBuilder(graph)
    for position in kept:
        value = step.outputs[position]
        assert value is not None
        if step.is_view:
            value = _copied(builder, value, StepKind.FORWARD)
        builder.results[_result(position)] = value
    for output, source in overwritten.items():
        new, old = step.outputs[output], step.inputs[source]
        assert new is not None
        assert old is not None
        builder.mutations[new] = old
    graph = builder.build()
    if graph.is_train:
        graph = batch_norm_state(graph)
    graph, chosen = select_forward(
        eliminate_dead_code(carried_states(graph)), device, differentiated, plain
    )
    selected = chosen.get(step.name)
    if differentiated and selected is not None:
        results = {f"extra:{index}": value for index, value in enumerate(selected.extra)}
        graph = graph.with_results(results)
    extra = tuple(name for name in graph.results if name.startswith("extra:"))
    return ForwardPlan(
        _planned(graph, device),
        tuple(
            _result(position) if position in kept else None for position in range(len(step.outputs))
        ),
        extra,
        _in_place(graph),
        selected,
    )


def plan_backward(
    graph: Graph,
    device: DeviceDescription,
    forward: Mapping[StepName, SelectedKernel],
    gradients: Mapping[str, str],
    heads: Mapping[ValueId, ValueId],
    added: Collection[str] = (),
) -> Plan:
    """Plan the backward steps of forward steps that have run.

    graph: the forward steps. forward: their kernels. gradients: the name of the result by the name
    of the source; a name in `added` is that of a source to which the gradient is added. heads: the
    gradients of heads, as of `gradient`. A forward value that backward reads and that is no source
    is a memory named by `source_name`. Raises UserError if the graph cannot be differentiated.
    """
    differentiated = gradient(graph, gradients, heads)
    found = differentiated.gradients
    builder = GraphBuilder(split_backward(differentiated.graph))
    roots = builder.build().roots()
    taken = set(builder.sources.values())
    for source, name in gradients.items():
        value = found[source]
        spec = replace(builder.values[value].spec)
        if name in added:
            old = builder.source(name, spec, MemoryClass.GRADIENTS)
            append_update(builder, f"{name}:add", create("elemwise_add", {}), (old, value), [old])
            continue
        # A result needs memory of its own.
        if roots[value] in taken or roots[value] != value:
            value = _copied(builder, value, StepKind.BACKWARD)
        else:
            taken.add(value)
        builder.results[name] = value
    live = eliminate_dead_code(builder.build())
    # The forward steps are not run; they say what their backward steps belong to.
    steps = [
        *(step for step in graph.steps if step.kind is StepKind.FORWARD),
        *(step for step in live.steps if step.kind is not StepKind.FORWARD),
    ]
    live = select_backward(replace(live, steps=tuple(steps)), device, forward)
    return _planned(live, device)


def plan_reorder(spec: TensorSpec, device: DeviceDescription) -> Plan:
    """Plan the conversion of a tensor `data` to plain layout, the result `output:0`."""
    data = Value("data", spec, MemoryClass.IO)
    graph = Graph((data,), (), {data.name: 0}, {_result(0): 0})
    return _planned(select(graph, device, KernelSelection(), fixed=False), device)


def _planned(graph: Graph, device: DeviceDescription) -> Plan:
    """Place a graph with kernels; its results become new versions of further sources."""
    builder = GraphBuilder(graph)
    for name, value in graph.results.items():
        target = builder.source(name, graph.spec(value), MemoryClass.IO)
        builder.mutations[value] = target
    graph = builder.build()
    if flags.debug():
        verify_graph(graph, "select")
    pinned = place_pinned([graph])
    placed, storage = assign_storage(graph, Sharing())
    phase = place(TRAIN, placed, storage, pinned)
    specs = {block.name: graph.spec(graph.sources[block.name]) for block in pinned}
    return Plan({TRAIN: phase}, pinned, specs, device, planning_ms=0.0)


def _in_place(graph: Graph) -> frozenset[tuple[str, str]]:
    """Return the pairs (source, result) that may be one place, of a graph of one step."""
    if len(graph.steps) != 1:
        return frozenset()
    sources = {value: name for name, value in graph.sources.items()}
    results = {value: name for name, value in graph.results.items()}
    return frozenset(
        (sources[source], results[result])
        for source, result in graph.steps[0].in_place_hints
        if source in sources and result in results and graph.spec(source) == graph.spec(result)
    )


def _copied(builder: GraphBuilder, value: ValueId, kind: StepKind) -> ValueId:
    """Append a copy of a value and return the copy."""
    source = builder.values[value]
    copy = builder.value(f"{source.name}_copy", source.spec, source.memory_class)
    builder.step(
        Step(
            name=f"{source.name}:copy{copy}",
            kind=kind,
            prop=create(_COPY, {}),
            inputs=(value,),
            outputs=(copy,),
            requests=writes((copy,)),
        )
    )
    return copy


def _result(position: int) -> str:
    return f"output:{position}"
