"""Single forward and backward calls of an operator's implementations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.device import CPU, REFERENCE
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.contract.memory import Array, GuardedMemory
from mxrun.contract.problem import Breach, Violation, attempting
from mxrun.contract.trial import Named, Trial, load, memory_of, opened
from mxrun.device.interface import Device
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.launch import Launch
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind, ResourceKind, ResourceRequest
from mxrun.operator.register import AnyProperty, Implementation, implementations

# Key, step and part of the batch of the random numbers, and the node's own stream.
RANDOM = (1234567890123456789, 42, 0)
STREAM = 987654321
# Initial content of outputs and scratch memory: NaN in every float type.
GARBAGE = 0xFF
# Kinds of devices that the checker runs kernels on, the preferred one first.
KINDS = (CPU, REFERENCE)


@dataclass(frozen=True)
class Conditions:
    """Conditions of a call that must not affect its results.

    threads: how many of the device's may compute. kind: kind of device; by default the first of
    `KINDS` that the implementation runs on. index: its number. `step` and `part` may affect random
    numbers only.
    """

    threads: int = 1
    kind: str | None = None
    index: int = 0
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


def kinds_of(implementation: Implementation) -> list[str]:
    """Return the kinds of devices on which the checker runs an implementation."""
    return [kind for kind in KINDS if implementation.runs_on(opened(kind=kind).description)]


def all_implementations(prop: AnyProperty) -> list[Implementation]:
    """Return the NumPy body and all registered implementations that the checker can run."""
    return [NUMPY, *filter(kinds_of, implementations(prop.type_string).values())]


def _device_of(implementation: Implementation, conditions: Conditions) -> Device:
    kind = conditions.kind or kinds_of(implementation)[0]
    return opened(conditions.threads, kind, conditions.index)


def _workspace(kernel: Kernel, garbage: int) -> GuardedMemory | None:
    """Return the scratch memory of a kernel; None if it needs none."""
    if not kernel.workspace_bytes:
        return None
    return GuardedMemory(TensorSpec((kernel.workspace_bytes,), "uint8"), fill=garbage)


@dataclass(frozen=True)
class ForwardRun:
    """Results of a forward call: outputs, and the extra outputs that backward reads.

    launches: of the call, to repeat it. trial: the call with its memory.
    """

    kernel: Kernel
    outputs: list[Array]
    extra: list[GuardedMemory]
    launches: tuple[Launch, ...]
    trial: Trial


@dataclass(frozen=True)
class BackwardRun:
    """Results of a backward call: gradients; `launches` and `trial` are as in ForwardRun."""

    kernel: Kernel
    gradients: list[Array]
    launches: tuple[Launch, ...]
    trial: Trial


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
    {output: input whose memory it takes}; those of overwritten states always do. Raises Breach if
    the call writes beyond a tensor or changes an input.
    """
    requests = requests or [OpReqType.WRITE] * len(outputs)
    inplace = {**overwritten_states(prop), **(inplace or {})}
    names = [*prop.list_arguments(), *prop.list_auxiliary_states()]
    if any(request.kind is ResourceKind.RANDOM for request in resources(prop, inputs)):
        inputs = [*inputs, np.array((RANDOM[0], conditions.step, conditions.part), np.int64)]
        names.append("random")
    device = _device_of(implementation, conditions)
    request = ForwardRequest(
        tuple(map(spec_of, inputs)),
        tuple(map(spec_of, outputs)),
        tuple(requests),
        is_train,
        device.description,
        STREAM,
    )
    whose = f"{implementation.name} forward"
    with attempting(whose):
        kernel = implementation.prepare_forward(prop, request)
        if kernel is None:
            return None
        sources = _laid_out(kernel.inputs, inputs)
        targets = _targets(kernel, outputs, sources, inplace)
        extra = [GuardedMemory(spec, fill=conditions.garbage) for spec in kernel.extra_outputs]
        trial = Trial(
            whose,
            device,
            kernel,
            list(map(Named, names, sources)),
            list(map(Named, prop.list_outputs(), targets)),
            extra,
            _workspace(kernel, conditions.garbage),
            set(inplace.values()),
        )
        launches = trial.run()
    return ForwardRun(kernel, [load(target) for target in targets], extra, launches, trial)


def overwritten_states(prop: AnyProperty) -> dict[int, int]:
    """Return {output: input} of auxiliary states that forward overwrites: a plan always stores both
    in the same memory, and forward may write only a part of it.
    """
    arguments = len(prop.list_arguments())
    mutated = prop.list_mutated_inputs().items()
    return {target: source for source, target in mutated if source >= arguments}


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
    Raises Breach like `forward`, if an implementation accepts forward but declines backward, and if
    scratch tensors in the memory of inputs change a gradient.
    """
    device = _device_of(implementation, conditions)
    request, values = _backward_request(
        prop, data, forward_run, requests or default_requests(prop), poison, device, unread
    )
    whose = f"{implementation.name} backward"
    with attempting(whose):
        kernel = implementation.prepare_backward(prop, request)
        if kernel is None:
            raise Breach(_without_backward(implementation))
        sources = _laid_out(kernel.inputs[: len(values)], values)
        targets = _targets(kernel, before, sources, inplace or {})
        extra = forward_run.extra[: len(kernel.inputs) - len(values)]
        trial = Trial(
            whose,
            device,
            kernel,
            [
                *map(Named, names_of(prop), sources),
                *(Named(f"extra output {i} of forward", memory) for i, memory in enumerate(extra)),
            ],
            [
                Named(f"gradient of {name}", memory)
                for name, memory in zip(prop.list_arguments(), targets, strict=True)
            ],
            [GuardedMemory(spec, fill=conditions.garbage) for spec in kernel.extra_outputs],
            _workspace(kernel, conditions.garbage),
            set((inplace or {}).values()),
        )
        launches = trial.run()
        if kernel.in_place and not inplace:
            again = _targets(kernel, before, sources, {})
            trial.with_scratch_in_place(again).run()
            for named, memory in zip(trial.outputs, again, strict=True):
                assert named.memory is not None
                if named.memory.bytes.tobytes() != memory.bytes.tobytes():
                    raise Breach(_depends_on_sharing(whose, named.name))
    return BackwardRun(kernel, [load(target) for target in targets], launches, trial)


def _backward_request(
    prop: AnyProperty,
    data: BackwardData,
    forward_run: ForwardRun,
    requests: Sequence[OpReqType],
    poison: bool,
    device: Device,
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
        device.description,
    )
    return request, values


def _without_backward(implementation: Implementation) -> Violation:
    """Return the violation of an implementation that prepares no backward kernel."""
    if implementation is NUMPY:
        return Violation(
            "the NumPy body has no backward, though gradients are computed",
            hint="write backward, or return GradientKind.NONE from list_gradients",
        )
    return Violation(
        f"{implementation.name} declines the backward of a forward that it accepts",
        hint="decline the forward too, or prepare the backward",
    )


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


def _depends_on_sharing(whose: str, name: str) -> Violation:
    return Violation(
        f"{whose} gives another {name} with scratch tensors in the memory of inputs",
        hint="drop the pair from Kernel.in_place, or read each element before writing",
    )
