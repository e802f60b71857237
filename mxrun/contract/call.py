"""One call of a prepared kernel on arrays, watched: what it may not touch, it may not touch."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from mxrun.backend.call import NativeCall
from mxrun.backend.team import team
from mxrun.base.errors import InternalError
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.contract.memory import Array, GuardedMemory, Within
from mxrun.contract.problem import Breach, Violation, attempting
from mxrun.operator.kernel import (
    BackwardRequest,
    Buffers,
    Call,
    ForwardRequest,
    Kernel,
    OpReqType,
)
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind, ResourceKind, ResourceRequest
from mxrun.operator.register import AnyProperty, Implementation, create, implementations

# The key, the step and the part of the batch that random numbers are drawn under, and the node's
# own stream.
RANDOM = (1234567890123456789, 42, 0)
STREAM = 987654321
# What memory holds that a call has to fill or may use as scratch: NaN in every float type.
GARBAGE = 0xFF


@dataclass(frozen=True)
class Conditions:
    """What must not matter to a result, or, as step and part, only to random numbers."""

    threads: int = 1
    garbage: int = GARBAGE
    step: int = RANDOM[1]
    part: int = RANDOM[2]


STANDARD = Conditions()


def spec_of(array: Array) -> TensorSpec:
    """The plain spec of an array."""
    return TensorSpec(array.shape, _type_name(array.dtype))


@cache
def _type_name(dtype: np.dtype[Any]) -> str:
    return str(dtype)


def all_implementations(prop: AnyProperty) -> list[Implementation]:
    """The NumPy body and everything registered beside it."""
    return [NUMPY, *implementations(prop.type_string).values()]


def reorder(source: GuardedMemory, target: GuardedMemory) -> None:
    """Between a plain layout and a kernel's own packing, by the implementation that knows it."""
    request = ForwardRequest((source.spec,), (target.spec,), (OpReqType.WRITE,), True, 1)
    for candidate in implementations("_reorder").values():
        kernel = candidate.prepare_forward(create("_reorder", {}), request)
        if kernel is not None:
            workspace = GuardedMemory(TensorSpec((max(kernel.workspace_bytes, 1),), "uint8"))
            addresses = ((source.address,), (target.address,), (), workspace.address)
            run(kernel.bind(Buffers(*addresses)))
            return
    raise InternalError(f"nothing reorders {source.spec} to {target.spec}")


def memory_of(spec: TensorSpec, value: Array) -> GuardedMemory:
    """Memory that holds a value in the layout of `spec`."""
    target = GuardedMemory(spec)
    if target.is_row_major:
        target.store(value)
    else:
        reorder(GuardedMemory(spec.laid_out(PLAIN), value), target)
    return target


def load(memory: GuardedMemory) -> Array:
    """The logical value of a tensor in any layout, copied."""
    if not memory.is_row_major:
        plain = GuardedMemory(memory.spec.laid_out(PLAIN))
        reorder(memory, plain)
        memory = plain
    return np.array(memory.logical(), order="C")


def run(calls: Sequence[Call]) -> None:
    """Execute calls in order; raises Breach where a checked native call reports an error."""
    for call in calls:
        if isinstance(call, NativeCall):
            signature = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * len(call.arguments))
            status = signature(call.function)(*call.arguments)
            if call.checked and status:
                raise Breach(Violation(f"a native call reports error {status}"))
        else:
            call.function()


@dataclass(frozen=True)
class Named:
    """Memory with the name that a message calls it by; None where the tensor is absent."""

    name: str
    memory: GuardedMemory | None


def buffers_of(
    inputs: Sequence[GuardedMemory | None],
    outputs: Sequence[GuardedMemory],
    extra: Sequence[GuardedMemory],
    workspace: GuardedMemory,
) -> Buffers:
    """The addresses of everything a kernel touches."""
    return Buffers(
        tuple(0 if memory is None else memory.address for memory in inputs),
        tuple(memory.address for memory in outputs),
        tuple(memory.address for memory in extra),
        workspace.address,
        tuple(0 if memory is None else memory.pitch for memory in inputs),
        tuple(memory.pitch for memory in outputs),
    )


def _workspace(kernel: Kernel, garbage: int) -> GuardedMemory:
    return GuardedMemory(TensorSpec((max(kernel.workspace_bytes, 1),), "uint8"), fill=garbage)


@dataclass(frozen=True)
class ForwardRun:
    """Outputs of a forward call with what its backward needs, and the call itself to repeat.

    owner: keeps alive what the calls point to.
    """

    kernel: Kernel
    outputs: list[Array]
    extra: list[GuardedMemory]
    calls: tuple[Call, ...]
    owner: Trial


@dataclass(frozen=True)
class BackwardRun:
    """Gradients of a backward call, and the call itself to repeat; `owner` as of a forward run."""

    kernel: Kernel
    gradients: list[Array]
    calls: tuple[Call, ...]
    owner: Trial


def forward(
    implementation: Implementation,
    prop: AnyProperty,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    requests: Sequence[OpReqType] | None = None,
    inplace: Mapping[int, int] | None = None,
    is_train: bool = True,
    conditions: Conditions = STANDARD,
) -> ForwardRun | None:
    """One forward call onto `outputs`' content; None when it is declined.

    inputs: arguments and auxiliary states; random numbers are those of RANDOM and STREAM.
    inplace: {output: input whose memory it takes}. Raises Breach where the call writes beyond a
    tensor or changes an input.
    """
    requests = requests or [OpReqType.WRITE] * len(outputs)
    names = [*prop.list_arguments(), *prop.list_auxiliary_states()]
    if any(request.kind is ResourceKind.RANDOM for request in resources(prop, inputs)):
        inputs = [*inputs, np.array((RANDOM[0], conditions.step, conditions.part), np.int64)]
        names.append("random")
    request = ForwardRequest(
        tuple(map(spec_of, inputs)),
        tuple(map(spec_of, outputs)),
        tuple(requests),
        is_train,
        conditions.threads,
        STREAM,
    )
    whose = f"{implementation.name} forward"
    with attempting(whose), _team(implementation, conditions):
        kernel = implementation.prepare_forward(prop, request)
        if kernel is None:
            return None
        sources = _laid_out(kernel.inputs, inputs)
        targets = _targets(kernel, outputs, sources, inplace or {})
        extra = [GuardedMemory(spec, fill=conditions.garbage) for spec in kernel.extra_outputs]
        trial = Trial(
            whose,
            kernel,
            list(map(Named, names, sources)),
            list(map(Named, prop.list_outputs(), targets)),
            extra,
            _workspace(kernel, conditions.garbage),
            set((inplace or {}).values()),
        )
        calls = trial.run()
    return ForwardRun(kernel, [load(target) for target in targets], extra, calls, trial)


def resources(prop: AnyProperty, inputs: Sequence[Array]) -> list[ResourceRequest]:
    """What forward requests beside its tensors."""
    return prop.forward_resource([spec_of(x) for x in inputs[: len(prop.list_arguments())]])


@dataclass(frozen=True)
class BackwardData:
    """The three groups that backward may read."""

    out_grad: Sequence[Array]
    in_data: Sequence[Array]
    out_data: Sequence[Array]

    @property
    def all(self) -> list[Array]:
        """The groups one after the other."""
        return [*self.out_grad, *self.in_data, *self.out_data]


def names_of(prop: AnyProperty) -> list[str]:
    """What messages call the tensors that backward may read, in the order of `BackwardData.all`."""
    outputs = prop.list_outputs()
    return [*(f"gradient of {name}" for name in outputs), *prop.list_arguments(), *outputs]


def declared(prop: AnyProperty) -> set[int]:
    """Positions in `BackwardData.all` of what the property says backward reads."""
    outputs, arguments = len(prop.list_outputs()), len(prop.list_arguments())
    positions = range(2 * outputs + arguments)
    first, second = outputs, outputs + arguments
    return set(
        prop.declare_backward_dependency(
            positions[:first], positions[first:second], positions[second:]
        )
    )


def backward(
    implementation: Implementation,
    prop: AnyProperty,
    data: BackwardData,
    before: Sequence[Array],
    forward_run: ForwardRun,
    requests: Sequence[OpReqType] | None = None,
    inplace: Mapping[int, int] | None = None,
    poison: bool = False,
    conditions: Conditions = STANDARD,
    unread: Collection[int] = (),
) -> BackwardRun:
    """One backward call; what is undeclared is absent, or with `poison` present and all NaN.

    unread: outputs whose gradient is absent too, as nothing reads them. before: what the gradients
    hold. inplace: {gradient: position in `data.all` whose memory it
    takes}. Raises Breach as `forward` does, and where an implementation lacks the backward of its
    forward.
    """
    request, values = _backward_request(
        prop, data, forward_run, requests or default_requests(prop), poison, conditions, unread
    )
    whose = f"{implementation.name} backward"
    with attempting(whose), _team(implementation, conditions):
        kernel = implementation.prepare_backward(prop, request)
        if kernel is None:
            raise Breach(
                Violation(
                    f"{implementation.name} declines the backward of a forward that it accepts",
                    hint="decline the forward too, or prepare the backward",
                )
            )
        sources = _laid_out(kernel.inputs[: len(values)], values)
        targets = _targets(kernel, before, sources, inplace or {})
        extra = forward_run.extra[: len(kernel.inputs) - len(values)]
        trial = Trial(
            whose,
            kernel,
            [
                *map(Named, names_of(prop), sources),
                *(Named(f"extra output {i} of forward", memory) for i, memory in enumerate(extra)),
            ],
            [
                Named(f"gradient of {name}", memory)
                for name, memory in zip(prop.list_arguments(), targets, strict=True)
            ],
            [],
            _workspace(kernel, conditions.garbage),
            set((inplace or {}).values()),
        )
        calls = trial.run()
    return BackwardRun(kernel, [load(target) for target in targets], calls, trial)


def _backward_request(
    prop: AnyProperty,
    data: BackwardData,
    forward_run: ForwardRun,
    requests: Sequence[OpReqType],
    poison: bool,
    conditions: Conditions,
    unread: Collection[int],
) -> tuple[BackwardRequest, list[Array]]:
    """What backward is asked for, and the values it finds, poisoned where it declares none."""
    needed = declared(prop).difference(unread)
    values = [
        value if index in needed else _poisoned(value) for index, value in enumerate(data.all)
    ]
    specs = [
        spec_of(value) if poison or index in needed else None for index, value in enumerate(values)
    ]
    first, second = len(data.out_grad), len(data.out_grad) + len(data.in_data)
    request = BackwardRequest(
        tuple(specs[:first]),
        tuple(specs[first:second]),
        tuple(specs[second:]),
        tuple(map(spec_of, data.in_data)),
        tuple(requests),
        forward_run.kernel,
        conditions.threads,
    )
    return request, values


def _team(implementation: Implementation, conditions: Conditions) -> AbstractContextManager[None]:
    """The team a native kernel is prepared for and finds set."""
    return nullcontext() if implementation is NUMPY else team(conditions.threads)


def default_requests(prop: AnyProperty) -> list[OpReqType]:
    """WRITE for every input with a gradient."""
    return [
        OpReqType.WRITE if kind is GradientKind.COMPUTES else OpReqType.NULL
        for kind in prop.list_gradients()
    ]


def _poisoned(value: Array) -> Array:
    fill = np.iinfo(value.dtype).max if value.dtype.kind in "iu" else np.nan
    return np.full_like(value, fill)


def _laid_out(
    specs: Sequence[TensorSpec | None], values: Sequence[Array]
) -> list[GuardedMemory | None]:
    return [
        None if spec is None else memory_of(spec, value)
        for spec, value in zip(specs, values, strict=True)
    ]


def _targets(
    kernel: Kernel,
    before: Sequence[Array],
    inputs: Sequence[GuardedMemory | None],
    inplace: Mapping[int, int],
) -> list[GuardedMemory]:
    """Where the outputs go: over an input (inplace: {output: input}) or over what was before."""
    targets = []
    for index, value in enumerate(before):
        spec = kernel.outputs[index] or spec_of(value)
        shared = inputs[inplace[index]] if index in inplace else None
        if shared is not None and _fits(shared.spec, spec):
            targets.append(shared.under(spec))
        else:
            targets.append(memory_of(spec, value))
    return targets


def _fits(source: TensorSpec, target: TensorSpec) -> bool:
    """Whether one tensor can lie where the other does, as a planner sees it."""
    plain = source.layout == target.layout == PLAIN and source.nbytes == target.nbytes
    return plain or source.same_bytes(target)


@dataclass(frozen=True)
class Trial:
    """One call with all its memory; shared: the inputs whose memory an output takes."""

    whose: str
    kernel: Kernel
    inputs: Sequence[Named]
    outputs: Sequence[Named]
    extra: Sequence[GuardedMemory]
    workspace: GuardedMemory
    shared: set[int]

    def run(self) -> tuple[Call, ...]:
        """Bind and run; raises Breach where the call leaves its tensors or changes an input."""
        kept = [
            (named.name, named.memory, named.memory.bytes.tobytes())
            for index, named in enumerate(self.inputs)
            if named.memory is not None and index not in self.shared
        ]
        sources = [named.memory for named in self.inputs]
        targets = [named.memory for named in self.outputs if named.memory is not None]
        calls = self.kernel.bind(buffers_of(sources, targets, self.extra, self.workspace))
        run(calls)
        extra = [Named(f"extra output {index}", memory) for index, memory in enumerate(self.extra)]
        workspace = Named("its workspace", self.workspace)
        _stays_within(self.whose, [*self.inputs, *self.outputs, *extra, workspace])
        for name, memory, content in kept:
            if memory.bytes.tobytes() != content:
                raise Breach(_changed(self.whose, name, memory, content))
        return calls

    def apart(self) -> Trial:
        """The call anew, where what may lie within larger tensors does so.

        Its outputs hold nothing yet.
        """
        inputs = list(self.inputs)
        for index, width in self.kernel.pitched_inputs.items():
            name, memory = inputs[index].name, inputs[index].memory
            if memory is not None:
                inputs[index] = Named(name, Within(memory.spec, width, memory.elements()))
        outputs = []
        for index, each in enumerate(self.outputs):
            assert each.memory is not None
            spec, width = each.memory.spec, self.kernel.pitched_outputs.get(index, 0)
            outputs.append(Named(each.name, Within(spec, width) if width else GuardedMemory(spec)))
        extra = [GuardedMemory(memory.spec) for memory in self.extra]
        return replace(self, inputs=inputs, outputs=outputs, extra=extra)


def _stays_within(whose: str, tensors: Sequence[Named]) -> None:
    for named in tensors:
        overrun = "" if named.memory is None else named.memory.overrun()
        if overrun:
            raise Breach(
                Violation(
                    f"{whose} writes outside {named.name}, {overrun}",
                    hint="other tensors lie there: write the tensor's own elements only",
                )
            )


def _changed(whose: str, name: str, memory: GuardedMemory, content: bytes) -> Violation:
    """The problem of an input that is no longer what it was."""
    now = np.frombuffer(memory.bytes.tobytes(), memory.spec.dtype)
    then = np.frombuffer(content, memory.spec.dtype)
    first = int(np.argmax(now.view(np.uint8) != then.view(np.uint8))) // now.itemsize
    index = None
    if memory.spec.layout == PLAIN:
        index = tuple(int(i) for i in np.unravel_index(first, memory.spec.shape))
    return Violation(
        f"{whose} changes its input {name}",
        str(then[first].item()),
        str(now[first].item()),
        "compute into an output; what training changes is a state of list_state_updates or an "
        "input of list_mutated_inputs",
        index,
    )
