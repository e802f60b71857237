"""Optimiser updates as steps of the graph, each as early as its inputs permit.

An update overwrites its parameter and states, so it must come after the last other reader of each.
Directly after the gradient is computed, it frees the gradient's memory early.

Needs: the gradients of the trained parameters. Provides: update steps and `mutations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mxrun.base.tensor import TensorSpec
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, Step, StepKind, ValueId, writes
from mxrun.graph.update_rule import (
    CLIPPED_SCALE,
    GRADIENT_SCALE,
    SCHEDULE,
    Clipping,
    UpdateRule,
    accumulated,
    averaged,
)
from mxrun.operator.register import AnyProperty, create

# Numbers of the step that updates read, by argument: the tensor and its number of elements.
_STEP_NUMBERS = {"gradient_scale": (GRADIENT_SCALE, 1), "schedule": (SCHEDULE, 3)}


def accumulate(graph: Graph, gradients: Mapping[str, ValueId]) -> tuple[Graph, dict[str, ValueId]]:
    """Add each gradient to its parameter's running sum (gradient accumulation).

    Return the graph and the values of the sums by parameter.
    """
    builder = GraphBuilder(graph)
    sums = {}
    for name, grad in gradients.items():
        before = builder.source(accumulated(name), graph.spec(grad), MemoryClass.GRADIENTS)
        (sums[name],) = append_update(
            builder, f"{name}:accumulate", create("elemwise_add", {}), (before, grad), [before]
        )
    return builder.build(), sums


def updates(
    graph: Graph,
    gradients: Mapping[str, ValueId],
    rules: Mapping[str, UpdateRule],
    clipping: Clipping | None = None,
    average: float | None = None,
    owned: Mapping[str, tuple[int, int]] | None = None,
) -> Graph:
    """Append one update per parameter in `gradients`.

    clipping: adds a step that first computes the global norm of all gradients. average: momentum of
    a moving average, which each new weight enters. owned: of each parameter, the bounds of the
    slice that is updated and has states, of its elements in row-major order; by default all.
    """
    builder = GraphBuilder(graph)
    numbers: dict[str, ValueId] = {}
    if clipping is not None:
        prop = create("_global_norm_scale", {"num_args": len(gradients), **vars(clipping)})
        clipped = builder.value(CLIPPED_SCALE, TensorSpec((1,)), MemoryClass.WORKSPACE)
        given = (*gradients.values(), _step_number(builder, "gradient_scale"))
        _append(builder, CLIPPED_SCALE, prop, given, (clipped,))
        numbers["gradient_scale"] = clipped
    for name, grad in gradients.items():
        weight, prop = graph.sources[name], rules[name].create()
        # The training loop writes these also where nothing is updated.
        known = {
            argument: _step_number(builder, argument)
            for argument in prop.list_arguments()
            if argument in _STEP_NUMBERS
        }
        if owned is not None:
            begin, end = owned[name]
            if begin == end:
                continue
            weight, grad = (
                builder.slice_of(each, begin, end) for each in (name, accumulated(name))
            )
        spec = builder.values[weight].spec
        known |= {"weight": weight, "grad": grad, **numbers}
        inputs = []
        for argument in prop.list_arguments():
            value = known.get(argument)
            if value is None:
                value = builder.source(f"{name}:{argument}", spec, MemoryClass.OPTIMIZER)
            inputs.append(value)
        new_weight, *_ = append_update(builder, f"{name}:update", prop, inputs)
        if average is not None:
            before = builder.source(averaged(name), spec, MemoryClass.OPTIMIZER)
            prop = create("_moving_average", {"momentum": average})
            append_update(builder, f"{averaged(name)}:update", prop, (before, new_weight))
    return builder.build()


def _step_number(builder: GraphBuilder, argument: str) -> ValueId:
    """Return the tensor of a step's numbers, which the training loop writes."""
    name, count = _STEP_NUMBERS[argument]
    return builder.source(name, TensorSpec((count,)), MemoryClass.IO)


def with_updates(graph: Graph, append: Callable[[GraphBuilder, Step, AnyProperty], None]) -> Graph:
    """Return the graph with what `append` adds for each forward step of an operator."""
    builder = GraphBuilder(graph)
    for step in graph.steps:
        if step.forward is None and step.prop is not None:
            append(builder, step, step.prop)
    return builder.build()


def append_update(
    builder: GraphBuilder,
    name: str,
    prop: AnyProperty,
    inputs: Sequence[ValueId],
    overwritten: Sequence[ValueId] = (),
) -> tuple[ValueId, ...]:
    """Append a step whose outputs overwrite other values; return the new ones.

    overwritten: what each output overwrites, by default the inputs that the property declares.
    """
    outputs = []
    mutated = {output: source for source, output in prop.list_mutated_inputs().items()}
    for value in overwritten or [inputs[mutated[output]] for output in sorted(mutated)]:
        before = builder.values[value]
        after = builder.value(f"{before.name}_next", before.spec, before.memory_class)
        builder.mutations[after] = value
        outputs.append(after)
    _append(builder, name, prop, tuple(inputs), tuple(outputs))
    return tuple(outputs)


def _append(
    builder: GraphBuilder,
    name: str,
    prop: AnyProperty,
    inputs: tuple[ValueId, ...],
    outputs: tuple[ValueId, ...],
) -> None:
    builder.step(
        Step(
            name=name,
            kind=StepKind.UPDATE,
            prop=prop,
            inputs=inputs,
            outputs=outputs,
            requests=writes(outputs),
        )
    )


def hoist_updates(graph: Graph) -> Graph:
    """Move each update directly after the last step that it depends on.

    It comes after all readers of what it overwrites, other updates included.
    """
    others = [step for step in graph.steps if step.kind is not StepKind.UPDATE]
    last_touch: dict[ValueId, int] = {}
    for position, step in enumerate(others):
        for value in (*step.reads, *step.writes):
            last_touch[value] = position
    # A reader of a view reads its source's memory.
    for step in reversed(others):
        if step.is_view:
            (source,), (view,) = step.reads[:1], step.writes[:1]
            last_touch[source] = max(last_touch[source], last_touch[view])
    following: dict[int, list[Step]] = {}
    changing = set(graph.mutations.values())
    for step in graph.steps:
        if step.kind is StepKind.UPDATE:
            overwritten = [graph.mutations[each] for each in step.writes if each in graph.mutations]
            position = max(last_touch.get(value, 0) for value in (*step.reads, *overwritten))
            # Readers of this step's outputs, and updates that overwrite what it reads, are updates
            # that come later in the list. What none overwrites, such as a learning rate, orders
            # nothing.
            read = (value for value in step.reads if value in changing)
            last_touch.update(dict.fromkeys((*read, *step.writes), position))
            following.setdefault(position, []).append(step)
    ordered: list[Step] = []
    for position, step in enumerate(others):
        ordered += [step, *following.get(position, [])]
    return replace(graph, steps=tuple(ordered))
