"""Check that a forward graph has a gradient for every trained variable.

Needs: a forward graph. Provides: one diagnostic per layer that prevents a gradient; none if the
backward passes can differentiate the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mxrun.base.errors import Diagnostic, SourceLocation
from mxrun.graph.graph import Graph, Step, ValueId
from mxrun.graph.node import Node
from mxrun.graph.recurrence.dependence import arguments_of, without_gradient
from mxrun.graph.recurrence.operator import RecurrenceProperty
from mxrun.operator.property import GradientKind
from mxrun.operator.register import AnyProperty

# Maximum number of layers that a diagnostic names on the path to the loss.
_MAX_NAMED = 6


def untrainable(
    graph: Graph, requested: Collection[str], heads: Collection[ValueId] = ()
) -> list[Diagnostic]:
    """Return why sources named in `requested` have no gradient, in the order of the steps.

    There is one diagnostic for each step without a gradient between a requested source and a loss
    or head, and one for each step whose requested sources no loss or head depends on.

    heads: values whose gradients are given from outside.
    """
    given, problems = _given_gradients(graph, requested, heads)
    missing = [name for name in requested if graph.sources[name] not in given]
    return [*problems, *_unreached(graph, missing)]


def reached(graph: Graph, requested: Collection[str], heads: Collection[ValueId]) -> list[str]:
    """Return the names in `requested` of the sources that get a gradient from a loss or head.

    That of the others is zero.
    """
    given, _ = _given_gradients(graph, requested, heads)
    return [name for name in requested if graph.sources[name] in given]


def _given_gradients(
    graph: Graph, requested: Collection[str], heads: Collection[ValueId]
) -> tuple[set[ValueId], list[Diagnostic]]:
    """Return the values that get a gradient, and a diagnostic for each step that has none."""
    reaching = depending_on(graph, {graph.sources[name] for name in requested})
    given = set(heads)
    # For each value with a gradient, the step that contributes to it nearest to the value's
    # producer.
    readers: dict[ValueId, Step] = {}
    # By layer: the iterations of an unrolled recurrence have the same.
    problems: dict[str, Diagnostic] = {}
    for step in reversed(graph.steps):
        assert step.prop is not None
        kinds = step.prop.list_gradients()
        out_grad = tuple(value if value in given else None for value in step.outputs)
        needed = needed_gradients(step, reaching)
        if not needed or not has_backward(step, out_grad):
            continue
        blocked = [index for index in needed if kinds[index] is GradientKind.NONE]
        if isinstance(step.prop, RecurrenceProperty):
            outputs = [index for index, value in enumerate(out_grad) if value is not None]
            for node, index in without_gradient(step.prop, outputs, needed):
                problems[node.name] = _blocked_within(node, index, step, readers)
            own = arguments_of(step.prop, outputs)
            needed = [index for index in needed if index in own]
        elif blocked and _layer(step) not in problems:
            problems[_layer(step)] = _blocked(step, blocked[0], readers)
        for index in needed:
            value = step.inputs[index]
            if value is not None and kinds[index] is not GradientKind.ZERO:
                given.add(value)
                readers[value] = step
    return given, [*problems.values()][::-1]


def depending_on(graph: Graph, targets: set[ValueId]) -> set[ValueId]:
    """Return the values that depend on `targets`, except through inputs with a zero gradient."""
    reaching = set(targets)
    for step in graph.steps:
        assert step.prop is not None
        kinds = step.prop.list_gradients()
        if any(
            value in reaching and kind is not GradientKind.ZERO
            for value, kind in zip(step.inputs, kinds, strict=False)
        ):
            reaching.update(step.writes)
    return reaching


def needed_gradients(step: Step, reaching: set[ValueId]) -> list[int]:
    """Return the positions of the arguments of a step whose gradients are needed."""
    assert step.prop is not None
    arguments = step.inputs[: len(step.prop.list_arguments())]
    return [index for index, value in enumerate(arguments) if value in reaching]


def has_backward(step: Step, out_grad: tuple[ValueId | None, ...]) -> bool:
    """Return whether a step has a loss, or an output gradient that its backward reads.

    If the operator declares no output gradient, any existing one counts.
    """
    assert step.prop is not None
    if step.prop.loss_output is not None:
        return True
    declared = declared_reads(step)
    read = [value for i, value in enumerate(out_grad) if (0, i) in declared]
    return any(value is not None for value in read or out_grad)


def declared_reads(step: Step) -> set[tuple[int, int]]:
    """Return the tensors that backward reads: (group, index) in out_grad, in_data and out_data."""
    assert step.prop is not None
    groups = (len(step.outputs), len(step.prop.list_arguments()), len(step.outputs))
    marks = [[(group, i) for i in range(size)] for group, size in enumerate(groups)]
    return set(step.prop.declare_backward_dependency(*marks))


def _layer(step: Step) -> str:
    """Return the name of a forward step's layer, whatever the iteration of a recurrence."""
    return (step.stream or step.name) if step.iterations else step.name


def _blocked(step: Step, index: int, readers: Mapping[ValueId, Step]) -> Diagnostic:
    """Return the diagnostic of a step that lacks a needed gradient."""
    assert step.prop is not None
    return _no_gradient(step.prop, _layer(step), index, step.place, _path_to_loss(step, readers))


def _blocked_within(
    node: Node, index: int, step: Step, readers: Mapping[ValueId, Step]
) -> Diagnostic:
    """Return the diagnostic of a node of a recurrence's body; step: that of the recurrence."""
    assert node.prop is not None
    path = [node.name, *_path_to_loss(step, readers)]
    return _no_gradient(node.prop, node.name, index, node.place, path)


def _no_gradient(
    prop: AnyProperty,
    name: str,
    index: int,
    place: SourceLocation | None,
    path: Sequence[str],
) -> Diagnostic:
    """Return the diagnostic of a layer; path: layers from there to a loss."""
    return Diagnostic(
        f"{prop.type_string} {name!r} has no gradient for {prop.list_arguments()[index]!r}, which "
        "is between a trained parameter and the loss",
        place=place,
        chain=(f"the loss depends on it: {' -> '.join(path)}",),
        hint="freeze the parameters before it, or use another operator",
    )


def _path_to_loss(step: Step, readers: Mapping[ValueId, Step]) -> list[str]:
    """Return the names of the forward steps from this one to a loss that depends on it."""
    names = [step.name]
    following = _reader(step, readers)
    while following is not None:
        if len(names) == _MAX_NAMED:
            return [*names, "..."]
        names.append(following.name)
        following = _reader(following, readers)
    return names


def _reader(step: Step, readers: Mapping[ValueId, Step]) -> Step | None:
    """Return the step that contributes a gradient to an output of this step, or None."""
    return next((readers[value] for value in step.writes if value in readers), None)


def _unreached(graph: Graph, names: Sequence[str]) -> list[Diagnostic]:
    """Return a diagnostic for each step that is the first to read sources without a gradient."""
    by_value = {graph.sources[name]: name for name in names}
    has_loss = any(step.prop and step.prop.loss_output is not None for step in graph.steps)
    found = []
    for step in graph.steps:
        own = [by_value.pop(value) for value in step.reads if value in by_value]
        if own:
            found.append(_no_loss(step, own, has_loss))
    return [*found, *(_no_loss(None, [name], has_loss) for name in by_value.values())]


def _no_loss(step: Step | None, names: Sequence[str], has_loss: bool) -> Diagnostic:
    """Describe why the named sources, which a step reads, cannot be trained."""
    listed = ", ".join(map(repr, names))
    pronoun = "it" if len(names) == 1 else "they"
    problem = f"no loss depends on {listed}, so {pronoun} cannot be trained"
    if not has_loss:
        problem = f"{listed} cannot be trained: the network has no loss"
    if step is not None and step.prop is not None:
        problem = f"{step.prop.type_string} {_layer(step)!r}: {problem}"
    frozen = ", ".join(f"{name}: {{frozen: true}}" for name in names)
    return Diagnostic(
        problem,
        place=None if step is None else step.place,
        hint="end the network with a loss such as SoftmaxOutput that reads the layer, or freeze "
        f"its parameters, network: {{variables: {{{frozen}}}}}",
    )
