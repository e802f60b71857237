"""The optimiser's updates as steps of the graph, each as early as its inputs allow.

An update overwrites its parameter and states, so it must come after the last other reader of each;
put there as soon as the gradient exists, it lets the gradient's memory go early.

Needs: the gradients of the trained parameters. Provides: update steps and `mutations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mxrun.base.tensor import TensorSpec
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, Step, StepKind, ValueId, writes
from mxrun.operator.register import AnyProperty, create


@dataclass(frozen=True)
class UpdateRule:
    """The update operator of one parameter, with its parameters (rates, decay, ...).

    Its arguments are the weight, its gradient, states named after the weight (`fc1_weight:mom`)
    and `schedule`, the tensor of the step's learning rate.
    """

    operator: str
    parameters: Mapping[str, object]


# The argument of the update operators, and the name of its tensor: the step's learning rate and
# the two bias corrections of Adam and its kind.
_SCHEDULE_ARGUMENT = "schedule"
SCHEDULE = "optimizer:schedule"


def updates(
    graph: Graph, gradients: Mapping[str, ValueId], rules: Mapping[str, UpdateRule]
) -> Graph:
    """Append one update per parameter in `gradients`, then move each to the earliest place."""
    builder = GraphBuilder(graph)
    for name, grad in gradients.items():
        prop = create(rules[name].operator, rules[name].parameters)
        _append(builder, graph, name, grad, prop)
    return _eager(builder.build())


def _append(
    builder: GraphBuilder, graph: Graph, name: str, grad: ValueId, prop: AnyProperty
) -> None:
    weight = graph.sources[name]
    spec = graph.spec(weight)
    inputs = []
    for argument in prop.list_arguments():
        if argument == "weight":
            inputs.append(weight)
        elif argument == "grad":
            inputs.append(grad)
        elif argument == _SCHEDULE_ARGUMENT:
            inputs.append(builder.source(SCHEDULE, TensorSpec((3,)), MemoryClass.IO))
        else:
            inputs.append(builder.source(f"{name}:{argument}", spec, MemoryClass.OPTIMIZER))
    mutated = prop.list_mutated_inputs()
    outputs = []
    for index in range(len(prop.list_outputs())):
        old = next(source for source, target in mutated.items() if target == index)
        before = builder.values[inputs[old]]
        after = builder.value(f"{before.name}_next", before.spec, before.memory_class)
        builder.mutations[after] = inputs[old]
        outputs.append(after)
    builder.step(
        Step(
            name=f"{name}:update",
            kind=StepKind.UPDATE,
            prop=prop,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            requests=writes(outputs),
        )
    )


def _eager(graph: Graph) -> Graph:
    """Place each update right after the last step that it must follow."""
    others = [step for step in graph.steps if step.kind is not StepKind.UPDATE]
    last_touch: dict[ValueId, int] = {}
    for position, step in enumerate(others):
        for value in (*step.reads(), *step.writes()):
            last_touch[value] = position
    following: dict[int, list[Step]] = {}
    for step in graph.steps:
        if step.kind is StepKind.UPDATE:
            position = max(last_touch.get(value, 0) for value in step.reads())
            following.setdefault(position, []).append(step)
    ordered: list[Step] = []
    for position, step in enumerate(others):
        ordered += [step, *following.get(position, [])]
    return replace(graph, steps=tuple(ordered))
