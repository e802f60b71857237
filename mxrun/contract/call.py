"""Single calls of prepared kernels on guarded arrays, with detection of illegal writes."""

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
from mxrun.contract.memory import Array, GuardedMemory, PitchedMemory
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

# Key, step and part of the batch of the random numbers, and the node's own stream.
RANDOM = (1234567890123456789, 42, 0)
STREAM = 987654321
# Initial content of outputs and scratch memory: NaN in every float type.
GARBAGE = 0xFF


@dataclass(frozen=True)
class Conditions:
    """Conditions of a call that must not affect its results.

    `step` and `part` may affect random numbers only.
    """

    threads: int = 1
    garbage: int = GARBAGE
    step: int = RANDOM[1]
    part: int = RANDOM[2]


STANDARD = Conditions()


def spec_of(array: Array) -> TensorSpec:
    """Return the spec of an array in plain layout."""
    return TensorSpec(array.shape, _type_name(array.dtype))


@cache
def _type_name(dtype: np.dtype[Any]) -> str:
    return str(dtype)


def all_implementations(prop: AnyProperty) -> list[Implementation]:
    """Return the NumPy body and all registered implementations."""
    return [NUMPY, *implementations(prop.type_string).values()]


def reorder(source: GuardedMemory, target: GuardedMemory) -> None:
    """Convert between plain layout and a kernel's own packing, by the `_reorder` operator."""
    request = ForwardRequest((source.spec,), (target.spec,), (OpReqType.WRITE,), True, 1)
    for candidate in implementations("_reorder").values():
        kernel = candidate.prepare_forward(create("_reorder", {}), request)
        if kernel is not None:
            workspace = GuardedMemory(TensorSpec((max(kernel.workspace_bytes, 1),), "uint8"))
            addresses = ((source.address,), (target.address,), (), workspace.address)
            run(kernel.bind(Buffers(*addresses)))
            return
    raise InternalError(f"no implementation reorders {source.spec} to {target.spec}")


def memory_of(spec: TensorSpec, value: Array) -> GuardedMemory:
    """Return memory that holds a value in the layout of `spec`."""
    target = GuardedMemory(spec)
    if target.is_row_major:
        target.store(value)
    else:
        reorder(GuardedMemory(spec.with_layout(PLAIN), value), target)
    return target


def load(memory: GuardedMemory) -> Array:
    """Return a copy of the logical value of a tensor in any layout."""
    if not memory.is_row_major:
        plain = GuardedMemory(memory.spec.with_layout(PLAIN))
        reorder(memory, plain)
        memory = plain
    return np.array(memory.logical(), order="C")


def run(calls: Sequence[Call]) -> None:
    """Execute calls in order; raises Breach if a checked native call returns an error status."""
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
    """Tensor memory with its name in messages; None if the tensor is absent."""

    name: str
    memory: GuardedMemory | None


def buffers_of(
    inputs: Sequence[GuardedMemory | None],
    outputs: Sequence[GuardedMemory],
    extra: Sequence[GuardedMemory],
    workspace: GuardedMemory,
) -> Buffers:
    """Return the addresses and pitches of everything a kernel accesses."""
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
    """Results of a forward call: outputs, the data backward needs, and the calls, to repeat them.

    owner: holds references to the memory that the calls point to.
    """

    kernel: Kernel
    outputs: list[Array]
    extra: list[GuardedMemory]
    calls: tuple[Call, ...]
    owner: Trial


@dataclass(frozen=True)
class BackwardRun:
    """Results of a backward call: gradients and the calls; `owner` as in ForwardRun."""

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
    """Call forward once, starting from the content of `outputs`; None if it is declined.

    inputs: arguments and auxiliary states; random numbers are those of RANDOM and STREAM. inplace:
    {output: input whose memory it takes}. Raises Breach if the call writes beyond a tensor or
    changes an input.
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
    """Return the resources that forward requests."""
    return prop.forward_resource([spec_of(x) for x in inputs[: len(prop.list_arguments())]])


@dataclass(frozen=True)
class BackwardData:
    """The three groups of tensors that backward may read."""

    out_grad: Sequence[Array]
    in_data: Sequence[Array]
    out_data: Sequence[Array]

    @property
    def all(self) -> list[Array]:
        """The groups concatenated."""
        return [*self.out_grad, *self.in_data, *self.out_data]


def names_of(prop: AnyProperty) -> list[str]:
    """Return message names of the tensors in `BackwardData.all`, in its order."""
    outputs = prop.list_outputs()
    return [*(f"gradient of {name}" for name in outputs), *prop.list_arguments(), *outputs]


def declared(prop: AnyProperty) -> set[int]:
    """Return the positions in `BackwardData.all` of the tensors that backward declares to read."""
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
    """Call backward once; undeclared tensors are absent, or NaN if `poison`.

    unread: outputs whose gradient is absent too, because no consumer reads them. before: initial
    content of the gradients. inplace: {gradient: position in `data.all` whose memory it takes}.
    Raises Breach like `forward`, and if an implementation accepts forward but declines backward.
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
    """Return the request of backward and its values, poisoned if undeclared."""
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
    """Set the team size that a native kernel is prepared for."""
    return nullcontext() if implementation is NUMPY else team(conditions.threads)


def default_requests(prop: AnyProperty) -> list[OpReqType]:
    """Return WRITE for every input with a computed gradient, else NULL."""
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
    """Return memory for the outputs: an input's (inplace: {output: input}), or new."""
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
    """Return whether the planner may place one tensor in the memory of the other."""
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
        """Bind and run; raises Breach on a write outside the tensors or to an input."""
        saved = [
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
        for name, memory, content in saved:
            if memory.bytes.tobytes() != content:
                raise Breach(_changed(self.whose, name, memory, content))
        return calls

    def with_pitched_memory(self) -> Trial:
        """Return the call on pitched memory wherever the kernel accepts slices of larger tensors.

        Its outputs are not computed yet.
        """
        inputs = list(self.inputs)
        for index, width in self.kernel.pitched_inputs.items():
            name, memory = inputs[index].name, inputs[index].memory
            if memory is not None:
                inputs[index] = Named(name, PitchedMemory(memory.spec, width, memory.elements()))
        outputs = []
        for index, each in enumerate(self.outputs):
            assert each.memory is not None
            spec, width = each.memory.spec, self.kernel.pitched_outputs.get(index, 0)
            outputs.append(
                Named(each.name, PitchedMemory(spec, width) if width else GuardedMemory(spec))
            )
        extra = [GuardedMemory(memory.spec) for memory in self.extra]
        return replace(self, inputs=inputs, outputs=outputs, extra=extra)


def _stays_within(whose: str, tensors: Sequence[Named]) -> None:
    for named in tensors:
        overrun = "" if named.memory is None else named.memory.overrun()
        if overrun:
            raise Breach(
                Violation(
                    f"{whose} writes outside {named.name}, {overrun}",
                    hint="write only the tensor's own elements: other tensors are stored beside it",
                )
            )


def _changed(whose: str, name: str, memory: GuardedMemory, content: bytes) -> Violation:
    """Return the violation for an input that the call has changed."""
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
