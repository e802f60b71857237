"""Expansion of recurrences: each becomes a forward step and a backward step that are loops.

What backward reads of the iterations becomes further outputs of the forward step: the histories of
the memories, and one tensor for each value that backward reads, with a row for every iteration.

Needs: a graph with its backward steps. Provides: loops in place of recurrences, whose bodies have
kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.recurrence.body import (
    BackwardRequestOfBody,
    BodyPasses,
    DividedBody,
    divide,
    forward_body,
    gradient_name,
    joint_body,
    next_name,
    output_name,
    requested_gradients,
)
from mxrun.compiler.recurrence.loops import Recurrence
from mxrun.compiler.recurrence.segments import (
    SegmentedRecurrence,
    segmented_backward_graph,
    segmented_forward_graph,
)
from mxrun.compiler.recurrence.steps import backward_graph, forward_graph
from mxrun.compiler.recurrence.tensors import loop_step
from mxrun.graph.graph import (
    Graph,
    GraphBuilder,
    GraphLoop,
    MemoryClass,
    Slice,
    Step,
    ValueId,
)
from mxrun.graph.lower import RANDOM_STATE
from mxrun.graph.recurrence.operator import RecurrenceProperty
from mxrun.passes.dead_code import eliminate_dead_code

# Memory classes of variables of the network, which a body reads as parameters.
_PARAMETERS = (MemoryClass.PARAMETERS, MemoryClass.AUXILIARY, MemoryClass.OPTIMIZER)


def expand_recurrences(graph: Graph, passes: BodyPasses) -> Graph:
    """Return the graph with loops in place of recurrences."""
    if not any(isinstance(step.prop, RecurrenceProperty) for step in graph.steps):
        return graph
    builder = GraphBuilder(graph)
    builder.steps = []
    backward = {step.forward: step for step in graph.steps if step.forward is not None}
    expansions: dict[str, _Expansion] = {}
    for step in graph.steps:
        if not isinstance(step.prop, RecurrenceProperty):
            builder.step(step)
        elif step.forward is None:
            expansion = _Expansion(builder, step, step.prop, backward.get(step.name), passes)
            expansions[step.name] = expansion
            expansion.add_forward(graph.is_train)
        else:
            expansions[step.forward].add_backward(step, graph.is_train)
    return builder.build()


class _Expansion:
    """One recurrence of a graph: its body, and its steps in the enclosing graph."""

    def __init__(
        self,
        builder: GraphBuilder,
        step: Step,
        prop: RecurrenceProperty,
        backward: Step | None,
        passes: BodyPasses,
    ) -> None:
        self._builder, self._step, self._prop = builder, step, prop
        self._backward, self._passes = backward, passes
        names = list(prop.list_arguments())
        if len(step.inputs) > len(names):
            names.append(RANDOM_STATE)
        values = dict(zip(names, step.inputs, strict=True))
        self._arguments = {name: value for name, value in values.items() if value is not None}
        self._results = self._named_outputs(step.outputs)
        # Gradients that enter backward, by the names of the outputs.
        self._gradients: dict[str, ValueId] = {}
        if backward is not None:
            given = backward.inputs[: len(prop.list_outputs())]
            self._gradients = self._named_outputs(given)
        self._handed_on: dict[str, ValueId] = {}
        self._carried = [memory.name for memory in prop.memories if memory.offset == 1]

    def _named_outputs(self, values: tuple[ValueId | None, ...]) -> dict[str, ValueId]:
        """Return the outputs that exist by the names of `forward_graph`'s results."""
        names = [output_name(index) for index in range(len(self._prop.stacked))]
        names += [memory.name for memory in self._prop.memories if memory.is_final]
        pairs = zip(names, values, strict=True)
        return {name: value for name, value in pairs if value is not None}

    def _spec(self, value: ValueId) -> TensorSpec:
        return self._builder.values[value].spec

    def _specs(self, values: Mapping[str, ValueId]) -> dict[str, TensorSpec]:
        """Return the specs with which tensors enter and leave a recurrence, all in float32."""
        specs = {name: self._spec(value) for name, value in values.items()}
        return {
            name: replace(spec, dtype=FLOAT32) if spec.dtype == BFLOAT16 else spec
            for name, spec in specs.items()
        }

    def add_forward(self, is_train: bool) -> None:
        """Append the forward step."""
        arguments = self._specs(self._arguments)
        body = self._forward_body(arguments, is_train)
        self._wanted = self._wanted_gradients(body)
        inner = {name: body.spec(value) for name, value in body.results.items()}
        self._recurrence = Recurrence(self._prop, arguments, self._count(), inner)
        self._divided = self._division(body)
        keeps, segments = self._backward is not None, self._segments()
        outer = (
            forward_graph(self._recurrence, self._divided, keeps, is_train)
            if segments is None
            else segmented_forward_graph(segments, keeps, is_train)
        )
        outputs = {*inner, *self._prop.parameters.final}
        outer = replace(
            outer,
            results={
                name: value
                for name, value in outer.results.items()
                if name in self._results or name not in outputs
            },
        )
        self._append(self._step, outer, self._arguments, self._forward_outputs(outer))

    def _forward_body(self, arguments: Mapping[str, TensorSpec], is_train: bool) -> Graph:
        """Return the body, with the stacked outputs that something reads or gives a gradient."""
        prop = self._prop
        data = {
            name
            for name, value in self._arguments.items()
            if self._builder.values[value].memory_class not in _PARAMETERS
        }
        body = forward_body(
            prop,
            [arguments[name] for name in prop.list_arguments()],
            {*prop.parameters.sequences, *prop.parameters.memories, *prop.parameters.valid, *data},
            is_train,
            self._passes.fuse,
            () if self._backward is not None else self._carried,
        )
        unread = {output_name(index) for index in range(len(prop.stacked))}
        unread -= {*self._results, *self._gradients}
        results = {name: value for name, value in body.results.items() if name not in unread}
        return replace(body, results=results)

    def _forward_outputs(self, outer: Graph) -> dict[str, ValueId]:
        """Return the values of the results of the forward step's graph.

        What is handed on to backward alone has a new value.
        """
        outputs = {}
        for name, value in outer.results.items():
            if name in self._results:
                outputs[name] = self._results[name]
            else:
                outputs[name] = self._handed_on[name] = self._builder.value(
                    f"{self._step.name}/{name}", outer.spec(value), MemoryClass.ACTIVATIONS
                )
        self._handed_on |= self._results
        return outputs

    def _segments(self) -> SegmentedRecurrence | None:
        """Return the recurrence in segments; None if it has none, or nothing to keep."""
        length = self._passes.segment
        if length is None or length >= self._recurrence.steps or self._wanted is None:
            return None
        if not (self._wanted.memories or self._wanted.sequences or self._wanted.others):
            return None
        return SegmentedRecurrence(self._recurrence, self._divided, length)

    def _count(self) -> int:
        given = (self._arguments[name] for name in self._prop.list_arguments())
        return self._prop.count([*map(self._spec, given)])

    def _wanted_gradients(self, body: Graph) -> BackwardRequestOfBody | None:
        if self._backward is None:
            return None
        names = self._prop.list_arguments()
        outputs = zip(names, self._backward.outputs, strict=True)
        requested = {name for name, value in outputs if value is not None}
        heads = [
            next_name(name) if name in self._prop.parameters.final else name
            for name in self._gradients
        ]
        return requested_gradients(self._prop, body, heads, requested)

    def _division(self, body: Graph) -> DividedBody:
        if self._wanted is None:
            forward = self._passes.select(eliminate_dead_code(body))
            return DividedBody(forward, forward, Graph(), {})
        joint = joint_body(body, self._wanted, self._carried, self._passes)
        shared = [name for name in self._prop.others if name in joint.sources]
        return divide(joint, body.results.keys(), shared, self._passes.is_cheap)

    def add_backward(self, step: Step, is_train: bool) -> None:
        """Append the backward step."""
        assert self._wanted is not None
        names = self._prop.list_arguments()
        outputs = {
            name: value
            for name, value in zip(names, step.outputs, strict=True)
            if value is not None
        }
        segments = self._segments()
        given_names, specs = self._gradients.keys(), self._specs(outputs)
        outer = (
            backward_graph(
                self._recurrence, self._divided, self._wanted, given_names, specs, is_train
            )
            if segments is None
            else segmented_backward_graph(segments, self._wanted, given_names, specs, is_train)
        )
        given = {**self._arguments, **self._handed_on}
        given |= {gradient_name(name): value for name, value in self._gradients.items()}
        of = tuple(self._arguments[name] for name in outputs)
        self._append(replace(step, gradients_of=of), outer, given, outputs)

    def _append(
        self,
        step: Step,
        outer: Graph,
        given: Mapping[str, ValueId],
        outputs: Mapping[str, ValueId],
    ) -> None:
        """Append the step that runs a graph once."""
        inputs = {name: given[name] for name in outer.sources}
        values = list(dict.fromkeys(inputs.values()))
        made = list(outputs.values())
        specs = {value: outer.spec(outer.sources[name]) for name, value in inputs.items()}
        loop = GraphLoop(
            count=1,
            body=outer,
            reads={name: Slice(values.index(value)) for name, value in inputs.items()},
            writes={name: Slice(made.index(value)) for name, value in outputs.items()},
            inputs=tuple(specs[value] for value in values),
            outputs=tuple(outer.spec(outer.results[name]) for name in outputs),
        )
        new = loop_step(step.name, step.kind, loop, tuple(values), tuple(made))
        self._builder.step(
            replace(
                new,
                forward=step.forward,
                gradients_of=step.gradients_of,
                order=step.order,
                place=step.place,
            )
        )
