"""Explicit gradient graph: backward steps for the requested gradients only.

The forward steps are visited from the last to the first. Each step between a requested source and a
loss gets one backward step, which reads the tensors that its operator declares and writes the
gradients that are needed further; the others get the null request. If a value has several readers,
their contributions are summed in the order of the readers, never of the schedule, so that every
schedule gives the same bits.

Needs: a forward graph. Provides: values named `<variable>_grad`, in the returned mapping.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError, UserError
from mxrun.base.layer_options import LayerOptions
from mxrun.graph.graph import (
    Graph,
    GraphBuilder,
    Iteration,
    MemoryClass,
    Step,
    StepKind,
    ValueId,
    writes,
)
from mxrun.graph.trainability import (
    declared_reads,
    depending_on,
    has_backward,
    needed_gradients,
    untrainable,
)
from mxrun.operator.property import GradientKind
from mxrun.operator.register import create


@dataclass(frozen=True, order=True)
class _Part:
    """Contribution to a gradient: the position of its reader, and the reader's iterations.

    The position of a gradient from outside is before that of every reader.
    """

    position: tuple[int, int]
    value: ValueId
    iterations: tuple[Iteration, ...] = field(default=(), compare=False)


_FROM_OUTSIDE = (-1, 0)


@dataclass(frozen=True)
class Differentiated:
    """Graph with backward steps, and the gradient's value for each requested source."""

    graph: Graph
    gradients: Mapping[str, ValueId]


def gradient(
    graph: Graph, requested: Collection[str], heads: Mapping[ValueId, ValueId] | None = None
) -> Differentiated:
    """Append the backward steps that compute the gradients of the sources named in `requested`.

    heads: for values where a gradient enters from outside, that gradient's value, a source of the
    same shape and dtype. It is summed with the contributions of the value's readers, as the first;
    a loss ignores it.

    Raises UserError if the graph cannot be differentiated, see `untrainable`.
    """
    heads = heads or {}
    require_trainable(graph, requested, heads)
    reaching = depending_on(graph, {graph.sources[name] for name in requested})
    builder = GraphBuilder(graph)
    contributions = Contributions(builder, graph)
    for value, given in heads.items():
        contributions.enter(value, given)
    for step in reversed(graph.steps):
        _differentiate(builder, step, reaching, contributions)
    gradients = contributions.of(requested)
    return Differentiated(builder.build(), gradients)


def require_trainable(
    graph: Graph, requested: Collection[str], heads: Collection[ValueId] = ()
) -> None:
    """Raise UserError with all diagnostics unless each requested source has a gradient."""
    problems = untrainable(graph, requested, heads)
    if problems:
        raise UserError(problems)


class Contributions:
    """Partial gradients of each value, collected until its producer is visited."""

    def __init__(self, builder: GraphBuilder, graph: Graph) -> None:
        self._builder = builder
        self._values = graph.values
        self._sources = graph.sources
        self._parameters = {
            value
            for value in graph.sources.values()
            if graph.values[value].memory_class is MemoryClass.PARAMETERS
        }
        self._parts: dict[ValueId, list[_Part]] = {}
        self._totals: dict[ValueId, ValueId] = {}

    def enter(self, value: ValueId, given: ValueId) -> None:
        """Take a gradient from outside as the first contribution to a value.

        Raises InternalError if shape or dtype differ.
        """
        own, other = (self._builder.values[each].spec for each in (value, given))
        if (own.shape, own.dtype) != (other.shape, other.dtype):
            raise InternalError(f"a gradient {other} for {self._values[value].name}, {own}")
        self._parts.setdefault(value, []).append(_Part(_FROM_OUTSIDE, given))

    def give(self, value: ValueId, reader: Step, argument: int, part: ValueId) -> bool:
        """Use an existing tensor as one reader's contribution; return whether that is possible.

        It is not for a parameter, whose gradient has another memory class, nor if shape or dtype
        differ (a value broadcast along an axis, or stored in another dtype).
        """
        given, own = self._builder.values[part].spec, self._values[value].spec
        if value in self._parameters or (given.shape, given.dtype) != (own.shape, own.dtype):
            return False
        self._parts.setdefault(value, []).append(_part(reader, argument, part))
        return True

    def new(self, value: ValueId, reader: Step, argument: int) -> ValueId:
        """Return a new value for the contribution of a reader by its input `argument`."""
        source = self._values[value]
        kind = self._memory_class(value)
        name = f"{source.name}_grad"
        parts = self._parts.setdefault(value, [])
        if parts:
            name += f"_{len(parts)}"
        part = self._builder.value(name, source.spec, kind)
        parts.append(_part(reader, argument, part))
        return part

    def total(self, value: ValueId) -> ValueId | None:
        """Return the sum over all readers, folded in their order; None without contributions.

        The readers in an unrolled recurrence are summed at the place of the first: those of one
        iteration, then these sums from the last iteration to the first.
        """
        if value in self._totals or value not in self._parts:
            return self._totals.get(value)
        self._totals[value] = self._folded(value, sorted(self._parts[value]), 0)
        return self._totals[value]

    def _folded(self, value: ValueId, parts: Sequence[_Part], depth: int) -> ValueId:
        """Return the sum of sorted parts, which are in the same `depth` iterations."""
        groups: dict[object, list[_Part]] = {}
        for part in parts:
            own = part.iterations[depth : depth + 1]
            groups.setdefault(own[0].recurrence if own else part, []).append(part)
        terms = []
        for key, group in groups.items():
            if isinstance(key, _Part):
                terms.append(key.value)
                continue
            by_number: dict[int, list[_Part]] = {}
            for part in group:
                by_number.setdefault(part.iterations[depth].number, []).append(part)
            numbers = sorted(by_number, reverse=True)
            sums = (self._folded(value, by_number[number], depth + 1) for number in numbers)
            terms.append(self._sum(value, sums))
        return self._sum(value, terms)

    def _sum(self, value: ValueId, terms: Iterable[ValueId]) -> ValueId:
        """Return the sum of terms in their order."""
        return functools.reduce(partial(self._add, value), terms)

    def of(self, requested: Collection[str]) -> dict[str, ValueId]:
        """Return the gradients of the named sources; further steps add up their parts.

        Raises InternalError if one has none.
        """
        totals = {name: self.total(self._sources[name]) for name in requested}
        found = {name: value for name, value in totals.items() if value is not None}
        if len(found) < len(totals):
            lacking = ", ".join(totals.keys() - found.keys())
            raise InternalError(f"trainable, and yet without a gradient: {lacking}")
        return found

    def _add(self, value: ValueId, earlier: ValueId, later: ValueId) -> ValueId:
        source = self._values[value]
        result = self._builder.value(
            f"{source.name}_grad_sum", source.spec, self._memory_class(value)
        )
        self._builder.step(
            Step(
                name=f"{source.name}:grad_sum{result}",
                kind=StepKind.BACKWARD,
                prop=create("elemwise_add", {}),
                inputs=(earlier, later),
                outputs=(result,),
                requests=writes((result,)),
            )
        )
        return result

    def _memory_class(self, value: ValueId) -> MemoryClass:
        if value in self._parameters:
            return MemoryClass.GRADIENTS
        return MemoryClass.ACTIVATION_GRADIENTS


def _part(reader: Step, argument: int, value: ValueId) -> _Part:
    """Return a contribution at the position at which the original network reads an argument.

    Fusion moves readers, and must not change a bit.
    """
    position = reader.readings[argument] if reader.readings else (reader.order, argument)
    return _Part(position, value, reader.iterations)


def backward_inputs(step: Step, out_grad: tuple[ValueId | None, ...]) -> tuple[ValueId | None, ...]:
    """Return out_grad + in_data + out_data, with None where the operator declares no read."""
    assert step.prop is not None
    declared = declared_reads(step)
    values = (out_grad, step.inputs[: len(step.prop.list_arguments())], step.outputs)
    return tuple(
        value if (group, i) in declared else None
        for group, tensors in enumerate(values)
        for i, value in enumerate(tensors)
    )


def backward_step(
    step: Step, inputs: tuple[ValueId | None, ...], in_grad: tuple[ValueId | None, ...]
) -> Step:
    """Return the backward of a forward step, which reads `inputs` and writes `in_grad`."""
    return Step(
        name=f"{step.name}:backward",
        kind=StepKind.BACKWARD,
        prop=step.prop,
        inputs=inputs,
        outputs=in_grad,
        requests=writes(in_grad),
        forward=step.name,
        options=LayerOptions(step.options.implementation),
        place=step.place,
    )


def _differentiate(
    builder: GraphBuilder, step: Step, reaching: set[ValueId], contributions: Contributions
) -> None:
    assert step.prop is not None
    kinds = step.prop.list_gradients()
    arguments = step.inputs[: len(kinds)]
    needed = needed_gradients(step, reaching)
    out_grad = tuple(
        None if value is None else contributions.total(value) for value in step.outputs
    )
    if not needed or not has_backward(step, out_grad):
        return
    passed, equal = step.prop.list_passed_gradients(), step.prop.list_equal_gradients()
    in_grad: list[ValueId | None] = [None] * len(kinds)
    for index in needed:
        value = arguments[index]
        assert value is not None
        given = out_grad[passed[index]] if index in passed else None
        if index in equal:
            given = in_grad[equal[index]]
        if kinds[index] is GradientKind.COMPUTES and not (
            given is not None and contributions.give(value, step, index, given)
        ):
            in_grad[index] = contributions.new(value, step, index)
    if any(value is not None for value in in_grad):
        inputs = backward_inputs(step, out_grad)
        builder.step(backward_step(step, inputs, tuple(in_grad)))
