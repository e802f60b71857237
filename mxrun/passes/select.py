"""Kernel selection for every step, and insertion of reorders where layouts differ.

Implementations are tried in order of preference and the first that accepts is selected; the NumPy
body accepts everything. A backward step uses the implementation of its forward step. Layouts
propagate along the steps: each kernel receives the layouts of its inputs and states those that it
requires. Dtypes propagate likewise: a kernel may require another dtype than its input has, and a
step that no kernel accepts in bfloat16 is prepared in float32. A gradient has the dtype of its
value: if a kernel computes a float32 gradient of a bfloat16 value, it is rounded at once, so that
the result does not depend on further readers, sums or reorders.

Needs: a complete graph, with the kernels of its loops. Provides: `kernel` of every step, layouts
and dtypes, reorder steps, extra outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeVar, overload

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription, NumpyBodies
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import InternalError, OperatorErrorContext, UserError
from mxrun.base.keywords import AUTO, PREFERRED
from mxrun.base.tensor import PLAIN, TensorSpec, unpacked
from mxrun.graph.graph import (
    Graph,
    GraphBuilder,
    MemoryClass,
    Step,
    StepKind,
    ValueId,
    writes,
)
from mxrun.operator.choices import Choices
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, stream_of
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import Precision
from mxrun.operator.register import AnyProperty, Implementation, create
from mxrun.operator.shape import require_complete
from mxrun.passes.autotune_candidates import Chooser, decide, fastest, named, question_of
from mxrun.passes.candidates import candidates, no_gradient, no_kernel
from mxrun.passes.fold_parameter_constants import GIVEN
from mxrun.passes.precision import ALWAYS_FLOAT32
from mxrun.passes.reorder_kernel import REORDER, reorder_kernel

Request = TypeVar("Request", ForwardRequest, BackwardRequest)


@dataclass(frozen=True)
class KernelSelection:
    """Options of kernel selection.

    implementation: for steps that name none: PREFERRED, AUTO, or the name of an implementation,
    used where it exists. chooser: times the candidates of AUTO; without it, AUTO is PREFERRED.
    autotuned: by step, the implementation to use without timing.
    """

    implementation: str = PREFERRED
    chooser: Chooser | None = None
    autotuned: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SelectedKernel:
    """Selected implementation and kernel of a forward step, for its backward step."""

    implementation: Implementation
    kernel: Kernel
    extra: tuple[ValueId, ...] = ()

    @property
    def low(self) -> bool:
        """True if the kernel uses bfloat16; if not, its backward is prepared in float32."""
        specs = (*self.kernel.inputs, *self.kernel.outputs)
        return any(spec is not None and spec.dtype == BFLOAT16 for spec in specs)


def select(graph: Graph, device: DeviceDescription, choice: KernelSelection, fixed: bool) -> Graph:
    """Prepare the kernel of every step for a device.

    fixed: if true, parameters and states do not change. Raises UserError if a step names an
    implementation that does not exist or does not support it.
    """
    selection = Selection(graph, device, choice, fixed)
    for step in graph.steps:
        with OperatorErrorContext(step.title, step.place):
            selection.add(step)
    selection.restore_results()
    return selection.builder.build()


class Selection:
    """Kernels selected so far, step by step; `chosen` holds those of forward steps by name."""

    def __init__(
        self, graph: Graph, device: DeviceDescription, choice: KernelSelection, fixed: bool
    ) -> None:
        self.builder = GraphBuilder(replace(graph, alignment=device.alignment))
        self.builder.steps = []
        self.graph = graph
        self.steps = {step.name: step for step in graph.steps}
        self.differentiated = {step.forward for step in graph.steps}
        if len(self.steps) < len(graph.steps):
            raise InternalError("two steps have one name")
        self.device = device
        self.choice = choice
        given = graph.sources.values() if fixed else ()
        self.fixed = {v for v in given if graph.values[v].memory_class in GIVEN}
        # Iterations of an unrolled recurrence have the kernels of a loop, which changes none.
        self.shared = {v for v in graph.sources.values() if graph.values[v].memory_class in GIVEN}
        self.chosen: dict[str, SelectedKernel] = {}
        self.reordered: dict[tuple[ValueId, str, str], ValueId] = {}
        self.rounded: dict[ValueId, ValueId] = {}

    def add(self, step: Step) -> None:
        """Append a step with its kernel, after the reorders that the kernel requires."""
        if self.rounded:
            step = replace(step, inputs=tuple(map(self._as_rounded, step.inputs)))
        assert step.prop is not None
        if step.loop is not None or step.hoisted:
            assert step.kernel is not None
            kernel = step.kernel
        elif step.prop.is_view:
            kernel = self._view(step)
        elif step.forward is not None:
            kernel = self._backward(step, self.chosen[step.forward])
        else:
            kernel = self._forward(step)
        self._take_dtypes(step, kernel)
        sources = step.inputs
        if step.forward is not None and step.forward in self.chosen:
            sources = (*sources, *self.chosen[step.forward].extra)
        inputs = tuple(
            None if value is None or required is None else self._converted(value, required)
            for value, required in zip(sources, kernel.inputs, strict=True)
        )
        # A step that was selected in a loop has its extra outputs already.
        further = () if step.hoisted else kernel.extra_outputs
        for value, produced in zip(step.outputs, kernel.outputs, strict=not step.hoisted):
            if value is not None and produced is not None and produced != self._spec(value):
                self.builder.values[value] = replace(self.builder.values[value], spec=produced)
        is_scratch = step.forward is not None
        used = MemoryClass.ACTIVATION_GRADIENTS if is_scratch else MemoryClass.ACTIVATIONS
        extra = tuple(
            self.builder.value(f"{step.name}_extra{i}", spec, used)
            for i, spec in enumerate(further)
        )
        if step.name in self.chosen:
            self.chosen[step.name] = replace(self.chosen[step.name], extra=extra)
        outputs = (*step.outputs, *extra)
        self.builder.step(replace(step, inputs=inputs, outputs=outputs, kernel=kernel))
        if step.reads and self.fixed.issuperset(step.reads):
            self.fixed.update(step.writes)
        if step.iterations and step.reads and self.shared.issuperset(step.reads):
            self.shared.update(step.writes)
        if step.forward is not None:
            self._round_gradients(step)

    def _take_dtypes(self, step: Step, kernel: Kernel) -> None:
        """Give carried states that a step overwrites the dtypes in which its kernel stores them.

        Otherwise a copy in that dtype would be overwritten in place of the state.
        """
        assert step.prop is not None
        for source in step.prop.list_mutated_inputs() if step.forward is None else ():
            value, required = step.inputs[source], kernel.inputs[source]
            if value is not None and required is not None:
                given = self.builder.values[value]
                if given.memory_class is MemoryClass.CARRIED:
                    self.builder.values[value] = replace(given, spec=required)

    def restore_results(self) -> None:
        """Convert all results to the plain layout, and from bfloat16 to float32.

        What loops hand to others remains in bfloat16.
        """
        of_loops = {value for step in self.graph.steps if step.loop for value in step.writes}
        for name, value in self.builder.results.items():
            spec = self._spec(value)
            spec = spec if value in of_loops else _wide(spec)
            self.builder.results[name] = self._converted(value, spec.with_layout(PLAIN))

    def restore_types(self, plain: bool) -> None:
        """Convert all results to the dtypes that they had, and to plain layout where it is packed.

        plain: to plain layout in any case.
        """
        for name, value in self.builder.results.items():
            spec = self._spec(value).with_layout(PLAIN) if plain else unpacked(self._spec(value))
            spec = replace(spec, dtype=self.graph.spec(value).dtype)
            self.builder.results[name] = self._converted(value, spec)

    def _round_gradients(self, step: Step) -> None:
        """Replace float32 gradients of bfloat16 values by bfloat16 copies for all later readers."""
        values = step.gradients_of or self.steps[step.forward or ""].inputs
        for value, gradient in zip(values, step.outputs, strict=False):
            if value is None or gradient is None:
                continue
            spec = self._spec(gradient)
            if spec.dtype == FLOAT32 and self._spec(value).dtype == BFLOAT16:
                self.rounded[gradient] = self._converted(gradient, _low(spec))

    def _as_rounded(self, value: ValueId | None) -> ValueId | None:
        return value if value is None else self.rounded.get(value, value)

    def _spec(self, value: ValueId) -> TensorSpec:
        return self.builder.values[value].spec

    def _specs(self, values: tuple[ValueId | None, ...]) -> tuple[TensorSpec | None, ...]:
        return tuple(None if value is None else self._spec(value) for value in values)

    def _outputs(self, step: Step) -> tuple[TensorSpec, ...]:
        """Return the specs of a forward step's outputs in the plain layout.

        Those of outputs that nothing reads are inferred: a body may ask for their shapes.
        """
        assert step.prop is not None
        found = self._specs(step.outputs)
        if None in found:
            inputs = [_wide(self._spec(value)) for value in step.reads]
            inferred = _inferred_outputs(step.prop, inputs)
            found = tuple(own or given for own, given in zip(found, inferred, strict=True))
        return tuple(spec.with_layout(PLAIN) for spec in found if spec is not None)

    def _forward(self, step: Step) -> Kernel:
        assert step.prop is not None
        request = ForwardRequest(
            inputs=tuple(self._spec(value) for value in step.reads),
            outputs=self._outputs(step),
            requests=step.requests,
            is_train=self.graph.is_train,
            differentiated=step.name in self.differentiated,
            device=self.device,
            stream=stream_of(step.stream or step.name),
            fixed=frozenset(i for i, v in enumerate(step.reads) if self._is_fixed(step, v)),
        )
        if step.kind is StepKind.UPDATE:
            # The output overwrites a tensor in the plain layout.
            plain = tuple(spec.with_layout(PLAIN) for spec in request.inputs)
            request = replace(request, inputs=plain)
        inputs, outputs = _all_wide(request.inputs), _all_wide(request.outputs)
        if _is_low_itself(step):
            request = replace(request, inputs=tuple(map(self._low_spec, step.reads)))
        elif step.prop.precision is Precision.INHERIT and inputs == request.inputs:
            # All inputs are float32, because no producer supported bfloat16.
            request = replace(request, outputs=outputs)
        wide = request
        if (inputs, outputs) != (request.inputs, request.outputs):
            wide = replace(request, inputs=inputs, outputs=outputs)
        full = step.prop.precision is Precision.FLOAT32
        for attempt in [wide] if full or wide is request else [request, wide]:
            wide_bodies = self.device.numpy_bodies is NumpyBodies.FLOAT32
            low = attempt != wide and wide_bodies
            known = [c for c in self._candidates(step) if c is not NUMPY or not low]
            chosen = self._chosen(step, known, attempt)
            if chosen is not None:
                self.chosen[step.name] = chosen
                return chosen.kernel
        raise UserError(no_kernel(step, self.device))

    def _chosen(
        self, step: Step, known: Sequence[Implementation], request: ForwardRequest
    ) -> SelectedKernel | None:
        """Return the first implementation that accepts, unless another is fixed or faster."""
        prepared = ((each, self._prepared(step, each.prepare_forward, request)) for each in known)
        accepting = (
            SelectedKernel(each, kernel) for each, kernel in prepared if kernel is not None
        )
        first = next(accepting, None)
        autotuned = self.choice.autotuned.get(step.name)
        if (
            first is None
            or first.implementation is NUMPY
            or first.kernel.implementation == autotuned
        ):
            return first
        if autotuned is not None:
            return next(
                (each for each in accepting if each.kernel.implementation == autotuned), first
            )
        chooser = self._chooser(step)
        if chooser is None:
            return first
        # NumPy bodies are not timed: no compiled implementation is slower.
        others = [each for each in accepting if each.implementation is not NUMPY]
        candidates = {each.implementation.name: each for each in (first, *others)}
        kernels = {name: partial(self._all_of, step, each) for name, each in candidates.items()}
        assert step.prop is not None
        question = question_of(step.prop, request)
        name, timed = decide("implementation", kernels, question, chooser)
        chosen = candidates[name]
        kernel = replace(chosen.kernel, candidates=(*timed, *chosen.kernel.candidates))
        return replace(chosen, kernel=kernel)

    def _all_of(self, step: Step, chosen: SelectedKernel) -> Iterator[Kernel]:
        """Yield the kernels to time for a forward step: its own, its reorders, and its backward.

        The gradients are assumed to have the layouts of the outputs.
        """
        kernel, prop = chosen.kernel, step.prop
        assert prop is not None
        yield from (kernel, *self._reorders(step, kernel))
        for later in (later for later in self.graph.steps if later.forward == step.name):
            tensors = (*kernel.outputs, *kernel.inputs[: len(prop.list_arguments())])
            read = tuple(
                None if value is None else spec
                for value, spec in zip(later.inputs, (*tensors, *kernel.outputs), strict=True)
            )
            outputs, arguments = len(kernel.outputs), len(tensors)
            grads = (spec.with_layout(PLAIN) for spec in tensors[outputs:] if spec is not None)
            request = BackwardRequest(
                *(read[:outputs], read[outputs:arguments], read[arguments:], tuple(grads)),
                *(later.requests, kernel, self.device),
            )
            backward = chosen.implementation.prepare_backward(prop, request)
            yield from () if backward is None else (backward,)

    def _is_fixed(self, step: Step, value: ValueId) -> bool:
        """Return whether no run, or no iteration of the step's recurrence, changes a value."""
        return value in self.fixed or bool(step.iterations and value in self.shared)

    def _candidates(self, step: Step) -> list[Implementation]:
        requested, differentiated = self._requested(step), step.name in self.differentiated
        return candidates(step, self.device, requested, differentiated)

    def _backward(self, step: Step, forward: SelectedKernel) -> Kernel:
        assert step.prop is not None
        arguments = len(step.prop.list_arguments())
        outputs = len(step.prop.list_outputs())
        values = self._forward_step(step)
        specs, before = self._specs(step.inputs), self._specs(values)
        if not forward.low:
            specs, before = _all_wide(specs), _all_wide(before)
        elif _is_low_itself(self.steps[step.forward or ""]):
            specs = tuple(None if v is None else self._low_spec(v) for v in step.inputs)
            before = tuple(map(self._low_spec, values))
        request = BackwardRequest(
            out_grad=specs[:outputs],
            in_data=specs[outputs : outputs + arguments],
            out_data=specs[outputs + arguments :],
            in_grad=tuple(spec.with_layout(PLAIN) for spec in before if spec is not None),
            requests=step.requests,
            forward=forward.kernel,
            device=self.device,
        )
        kernel = self._prepared(step, forward.implementation.prepare_backward, request)
        if kernel is None and forward.implementation is NUMPY:
            raise UserError(no_gradient(step, step.forward or "", self.device))
        if kernel is None:
            raise InternalError(
                f"{forward.implementation.name} has a forward but no backward for {step.name}"
            )
        return kernel

    def _low_spec(self, value: ValueId) -> TensorSpec:
        """Return the spec of a value as a bfloat16 step reads it; states keep their dtype."""
        always_float32 = self.builder.values[value].memory_class in ALWAYS_FLOAT32
        return self._spec(value) if always_float32 else _low(self._spec(value))

    def _requested(self, step: Step) -> str:
        return step.options.implementation or self.choice.implementation

    def _chooser(self, step: Step) -> Chooser | None:
        """Return the callable that times the step's candidates; None without autotuning."""
        return self.choice.chooser if self._requested(step) == AUTO else None

    def _prepared(
        self, step: Step, prepare: Callable[[AnyProperty, Request], Kernel | None], request: Request
    ) -> Kernel | None:
        """Return an implementation's kernel: the fixed, the fastest or the preferred variant."""
        prop, choice = step.prop, self.choice
        assert prop is not None

        def prepare_as(choices: Choices) -> Kernel | None:
            return prepare(prop, replace(request, choices=choices))

        if step.name in choice.autotuned:
            return named(prepare_as, choice.autotuned[step.name])
        chooser = self._chooser(step)
        if chooser is None:
            return prepare(prop, request)
        surroundings = partial(self._reorders, step)
        return fastest(prepare_as, surroundings, question_of(prop, request), chooser)

    def _reorders(self, step: Step, kernel: Kernel) -> Iterator[Kernel]:
        """Yield the reorders that a kernel requires in every run.

        An output in a packed layout is assumed to be read in the plain layout elsewhere.
        """
        for value, required in zip(step.inputs, kernel.inputs, strict=False):
            if value is None or required is None or self._is_fixed(step, value):
                continue
            if not self._spec(value).same_bytes(required):
                yield reorder_kernel(self._spec(value), required, self.device)
        for spec in kernel.outputs:
            if spec is not None and spec != unpacked(spec):
                yield reorder_kernel(spec, unpacked(spec), self.device)

    def _forward_step(self, step: Step) -> tuple[ValueId, ...]:
        assert step.prop is not None
        forward = self.steps[step.forward or ""]
        arguments = forward.inputs[: len(step.prop.list_arguments())]
        return tuple(value for value in arguments if value is not None)

    def _view(self, step: Step) -> Kernel:
        """Return the kernel of a view, forward or backward.

        Input and output are plain, or of any layout if their shapes are equal. The output has the
        dtype of the input, which is converted if the step requests float32.
        """
        given, viewed = (self._spec(values[0]) for values in (step.reads, step.writes))
        given = _wide(given) if step.options.precision == FLOAT32 else given
        layout = given.layout if given.shape == viewed.shape else PLAIN
        first = step.inputs.index(step.reads[0])
        inputs = tuple(
            None if spec is None else (given if index == first else spec).with_layout(layout)
            for index, spec in enumerate(self._specs(step.inputs))
        )
        outputs = tuple(
            None if spec is None else replace(spec, dtype=given.dtype, layout=layout)
            for spec in self._specs(step.outputs)
        )
        return Kernel("view", inputs, outputs, bind=lambda buffers: (), is_view=True)

    def _converted(self, value: ValueId, required: TensorSpec) -> ValueId:
        """Return `value`, or its copy in the required layout and dtype; each copy is made once."""
        spec = self._spec(value)
        if spec.same_bytes(required):
            return value
        key = (value, required.layout.name, required.dtype)
        if key not in self.reordered:
            self.reordered[key] = self._reorder(value, spec, required)
        return self.reordered[key]

    def _reorder(self, value: ValueId, spec: TensorSpec, required: TensorSpec) -> ValueId:
        source = self.builder.values[value]
        kind = source.memory_class
        if kind in (MemoryClass.PARAMETERS, MemoryClass.IO):
            kind = MemoryClass.WORKSPACE
        name = f"{source.name}@{required.layout.name.split(':')[0]}"
        if required.dtype != spec.dtype:
            name += f":{required.dtype}"
        copy = self.builder.value(name, required, kind)
        self.builder.step(
            Step(
                name=f"{source.name}:reorder{copy}",
                kind=StepKind.REORDER,
                prop=create(REORDER, {}),
                inputs=(value,),
                outputs=(copy,),
                requests=writes((copy,)),
                kernel=reorder_kernel(spec, required, self.device),
            )
        )
        return copy


def _is_low_itself(step: Step) -> bool:
    """Return whether a step that inherits its dtype is explicitly set to bfloat16."""
    follows = step.prop is not None and step.prop.precision is Precision.INHERIT
    return follows and step.options.precision == BFLOAT16


def _low(spec: TensorSpec) -> TensorSpec:
    """Return the spec with float32 replaced by bfloat16, in a layout that both dtypes have."""
    return replace(unpacked(spec), dtype=BFLOAT16) if spec.dtype == FLOAT32 else spec


def _inferred_outputs(prop: AnyProperty, inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return the specs of an operator's outputs; `inputs` starts with its arguments."""
    given, absent = inputs[: len(prop.list_arguments())], [None] * len(prop.list_outputs())
    shapes = prop.infer_shape([spec.shape for spec in given], [*absent]).outputs
    _, dtypes = prop.infer_type([spec.dtype for spec in given], [*absent])
    return [
        TensorSpec(require_complete(shape), dtype or FLOAT32)
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]


def _wide(spec: TensorSpec) -> TensorSpec:
    """Return the spec with bfloat16 replaced by float32, in a layout that both dtypes have."""
    return replace(unpacked(spec), dtype=FLOAT32) if spec.dtype == BFLOAT16 else spec


@overload
def _all_wide(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]: ...


@overload
def _all_wide(specs: tuple[TensorSpec | None, ...]) -> tuple[TensorSpec | None, ...]: ...


def _all_wide(specs: tuple[TensorSpec | None, ...]) -> tuple[TensorSpec | None, ...]:
    return tuple(None if spec is None else _wide(spec) for spec in specs)
