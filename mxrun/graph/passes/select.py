"""Choose a kernel for every step, and put reorders where its layouts differ from what comes.

Implementations are asked in their order of preference and the first that accepts is taken; the
NumPy body accepts everything. A backward step uses the implementation of its forward step. Layouts
flow along the steps: each kernel sees its inputs as they lie and says how it wants them.

Needs: a complete graph. Provides: `kernel` of every step, layouts, reorder steps, extra outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mxrun.base.errors import AtWorkFor, Diagnostic, InternalError, UserError
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.graph.graph import (
    Graph,
    GraphBuilder,
    MemoryClass,
    Step,
    StepKind,
    ValueId,
    writes,
)
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, stream_of
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import Implementation, create, implementations

AUTO = "auto"
REORDER = "_reorder"


@dataclass(frozen=True)
class Chosen:
    """What the forward step leaves for its backward step."""

    implementation: Implementation
    kernel: Kernel
    extra: tuple[ValueId, ...]


def select(graph: Graph, threads: int, implementation: str = AUTO) -> Graph:
    """Prepare every step for a team of `threads`; `implementation` is for steps that name none.

    Raises UserError when a step asks for an implementation that does not exist or cannot do it.
    """
    selection = _Selection(graph, threads, implementation)
    for step in graph.steps:
        with AtWorkFor(step.title, step.place):
            selection.add(step)
    selection.restore_results()
    return selection.builder.build()


class _Selection:
    def __init__(self, graph: Graph, threads: int, implementation: str) -> None:
        self.builder = GraphBuilder(graph)
        self.builder.steps = []
        self.graph = graph
        self.steps = {step.name: step for step in graph.steps}
        if len(self.steps) < len(graph.steps):
            raise InternalError("two steps have one name")
        self.threads = threads
        self.implementation = implementation
        self.chosen: dict[str, Chosen] = {}
        self.reordered: dict[tuple[ValueId, str], ValueId] = {}

    def add(self, step: Step) -> None:
        assert step.prop is not None
        if step.prop.is_view:
            kernel = self._view(step)
        elif step.forward is not None:
            kernel = self._backward(step, self.chosen[step.forward])
        else:
            kernel = self._forward(step)
        sources = step.inputs
        if step.forward is not None and step.forward in self.chosen:
            sources = (*sources, *self.chosen[step.forward].extra)
        inputs = tuple(
            None if value is None or wanted is None else self._as_wanted(value, wanted)
            for value, wanted in zip(sources, kernel.inputs, strict=True)
        )
        outputs = list(step.outputs)
        for value, made in zip(step.outputs, kernel.outputs, strict=True):
            if value is not None and made is not None:
                self.builder.values[value] = replace(self.builder.values[value], spec=made)
        extra = tuple(
            self.builder.value(f"{step.name}_extra{i}", spec, MemoryClass.ACTIVATIONS)
            for i, spec in enumerate(kernel.extra_outputs)
        )
        if step.name in self.chosen:
            self.chosen[step.name] = replace(self.chosen[step.name], extra=extra)
        self.builder.step(replace(step, inputs=inputs, outputs=(*outputs, *extra), kernel=kernel))

    def restore_results(self) -> None:
        """Whoever reads a result from outside sees it plain."""
        for name, value in self.builder.results.items():
            spec = self.builder.values[value].spec
            self.builder.results[name] = self._as_wanted(value, spec.laid_out(PLAIN))

    def _spec(self, value: ValueId) -> TensorSpec:
        return self.builder.values[value].spec

    def _specs(self, values: tuple[ValueId | None, ...]) -> tuple[TensorSpec | None, ...]:
        return tuple(None if value is None else self._spec(value) for value in values)

    def _logical(self, values: tuple[ValueId | None, ...]) -> tuple[TensorSpec, ...]:
        """Output specs; an output nobody asked for stands as an empty tensor."""
        return tuple(
            TensorSpec(()) if value is None else self._spec(value).laid_out(PLAIN)
            for value in values
        )

    def _forward(self, step: Step) -> Kernel:
        assert step.prop is not None
        request = ForwardRequest(
            inputs=tuple(self._spec(value) for value in step.reads()),
            outputs=self._logical(step.outputs),
            requests=step.requests,
            is_train=self.graph.is_train,
            threads=self.threads,
            stream=stream_of(step.name),
        )
        for candidate in self._candidates(step):
            kernel = candidate.prepare_forward(step.prop, request)
            if kernel is not None:
                self.chosen[step.name] = Chosen(candidate, kernel, ())
                return kernel
        raise UserError(
            Diagnostic(
                f"{step.prop.type_string} {step.name!r} cannot run as {step.implementation!r} "
                "with these shapes and parameters",
                place=step.place,
                hint="leave out `implementation` to let the best one be chosen",
            )
        )

    def _candidates(self, step: Step) -> list[Implementation]:
        assert step.prop is not None
        operator = step.prop.type_string
        known = {**implementations(operator), NUMPY.name: NUMPY}
        wanted = step.implementation or self.implementation
        if wanted == AUTO:
            return list(known.values())
        if wanted in known:
            return [known[wanted]]
        if step.implementation is None:
            return list(known.values())
        raise UserError(
            Diagnostic(
                f"{operator} has no implementation {wanted!r}",
                place=step.place,
                expected=f"one of auto, {', '.join(known)}",
            )
        )

    def _backward(self, step: Step, forward: Chosen) -> Kernel:
        assert step.prop is not None
        arguments = len(step.prop.list_arguments())
        outputs = len(step.prop.list_outputs())
        specs = self._specs(step.inputs)
        before = self._forward_step(step)
        request = BackwardRequest(
            out_grad=specs[:outputs],
            in_data=specs[outputs : outputs + arguments],
            out_data=specs[outputs + arguments :],
            in_grad=tuple(self._spec(value).laid_out(PLAIN) for value in before),
            requests=step.requests,
            forward=forward.kernel,
            threads=self.threads,
        )
        kernel = forward.implementation.prepare_backward(step.prop, request)
        if kernel is None:
            raise InternalError(
                f"{forward.implementation.name} has a forward but no backward for {step.name}"
            )
        return kernel

    def _forward_step(self, step: Step) -> tuple[ValueId, ...]:
        assert step.prop is not None
        forward = self.steps[step.forward or ""]
        arguments = forward.inputs[: len(step.prop.list_arguments())]
        return tuple(value for value in arguments if value is not None)

    def _view(self, step: Step) -> Kernel:
        """A view needs its input plain and gives it plain; one of the same shape takes any layout.

        A backward view likewise.
        """
        given, made = (self._spec(values[0]) for values in (step.reads(), step.writes()))
        layout = given.layout if given.shape == made.shape else PLAIN
        inputs = tuple(
            None if spec is None else spec.laid_out(layout) for spec in self._specs(step.inputs)
        )
        outputs = tuple(
            None if spec is None else spec.laid_out(layout) for spec in self._specs(step.outputs)
        )
        return Kernel("view", inputs, outputs, bind=lambda buffers: (), is_view=True)

    def _as_wanted(self, value: ValueId, wanted: TensorSpec) -> ValueId:
        """`value` itself, or a copy of it in the wanted layout, made once."""
        spec = self._spec(value)
        if spec.same_bytes(wanted):
            return value
        key = (value, wanted.layout.name)
        if key not in self.reordered:
            self.reordered[key] = self._reorder(value, spec, wanted)
        return self.reordered[key]

    def _reorder(self, value: ValueId, spec: TensorSpec, wanted: TensorSpec) -> ValueId:
        source = self.builder.values[value]
        kind = source.memory_class
        if kind in (MemoryClass.PARAMETERS, MemoryClass.IO):
            kind = MemoryClass.WORKSPACE
        name = f"{source.name}@{wanted.layout.name.split(':')[0]}"
        copy = self.builder.value(name, wanted, kind)
        prop = create(REORDER, {})
        request = ForwardRequest((spec,), (wanted,), writes((copy,)), False, self.threads)
        for candidate in implementations(REORDER).values():
            kernel = candidate.prepare_forward(prop, request)
            if kernel is not None:
                self.builder.step(
                    Step(
                        name=f"{source.name}:reorder{copy}",
                        kind=StepKind.REORDER,
                        prop=prop,
                        inputs=(value,),
                        outputs=(copy,),
                        requests=writes((copy,)),
                        kernel=kernel,
                    )
                )
                return copy
        raise InternalError(f"nothing reorders {spec} to {wanted}")
