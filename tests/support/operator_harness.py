"""Runs prepared kernels of any implementation on NumPy arrays, one call at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun import library
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec
from mxrun.operator.kernel import (
    BackwardRequest,
    Buffers,
    Call,
    ForwardRequest,
    Kernel,
    NativeCall,
    OpReqType,
)
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind, ResourceKind, ResourceRequest
from mxrun.operator.register import AnyProperty, Implementation, create, implementations

Array = npt.NDArray[Any]
SENTINEL = 3.0
# The key and the step that random numbers are drawn under, and the node's own stream.
RANDOM = (1234567890123456789, 42)
STREAM = 987654321

library.load()


def spec_of(array: Array) -> TensorSpec:
    """The plain spec of an array."""
    return TensorSpec(array.shape, str(array.dtype))


def all_implementations(prop: AnyProperty) -> list[Implementation]:
    """The NumPy body and everything registered beside it."""
    return [NUMPY, *implementations(prop.type_string).values()]


class Memory:
    """Aligned bytes that hold one tensor in some layout."""

    def __init__(self, spec: TensorSpec, value: Array | None = None, fill: int = 0xFF) -> None:
        self.spec = spec
        self._owner = np.full(spec.nbytes + 64, fill, np.uint8)
        offset = -self._owner.ctypes.data % 64
        self.bytes = self._owner[offset : offset + spec.nbytes]
        if value is not None:
            self.store(value)

    @property
    def address(self) -> int:
        return int(self.bytes.ctypes.data)

    def _logical(self) -> Array:
        typed, shape = self.bytes.view(self.spec.dtype), self.spec.shape
        if self.spec.layout == CHANNELS_LAST:
            return np.moveaxis(typed.reshape(shape[0], *shape[2:], shape[1]), -1, 1)
        assert self.spec.layout == PLAIN, f"no NumPy form of {self.spec}"
        return typed.reshape(shape)

    def store(self, value: Array) -> None:
        """Write the logical value in this memory's layout."""
        if self.spec.layout in (PLAIN, CHANNELS_LAST):
            self._logical()[...] = value
        else:
            reorder(Memory(self.spec.laid_out(PLAIN), value), self)

    def load(self) -> Array:
        """The logical value, copied."""
        if self.spec.layout in (PLAIN, CHANNELS_LAST):
            return np.array(self._logical(), order="C")
        plain = Memory(self.spec.laid_out(PLAIN))
        reorder(self, plain)
        return plain.load()


def reorder(source: Memory, target: Memory) -> None:
    """Between a plain layout and a kernel's own packing, by the implementation that knows it."""
    request = ForwardRequest((source.spec,), (target.spec,), (OpReqType.WRITE,), True, 1)
    for candidate in implementations("_reorder").values():
        kernel = candidate.prepare_forward(create("_reorder", {}), request)
        if kernel is not None:
            return execute(kernel, [source], [target])
    raise AssertionError(f"nothing reorders {source.spec} to {target.spec}")


def run(calls: Sequence[Call]) -> None:
    """Execute calls in order; a checked native call must return zero."""
    for call in calls:
        if isinstance(call, NativeCall):
            signature = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * len(call.arguments))
            status = signature(call.function)(*call.arguments)
            assert not call.checked or status == 0, f"native call returned {status}"
        else:
            call.function()


def execute(
    kernel: Kernel,
    inputs: Sequence[Memory | None],
    outputs: Sequence[Memory],
    extra: Sequence[Memory] = (),
) -> None:
    """Bind and run one kernel with a workspace of garbage."""
    workspace = Memory(TensorSpec((max(kernel.workspace_bytes, 1),), "uint8"))
    run(
        kernel.bind(
            Buffers(
                tuple(0 if memory is None else memory.address for memory in inputs),
                tuple(memory.address for memory in outputs),
                tuple(memory.address for memory in extra),
                workspace.address,
            )
        )
    )


@dataclass(frozen=True)
class ForwardRun:
    """Outputs of a forward call with what its backward needs."""

    kernel: Kernel
    outputs: list[Array]
    extra: list[Memory]


def _laid_out(specs: Sequence[TensorSpec | None], values: Sequence[Array]) -> list[Memory | None]:
    return [
        None if spec is None else Memory(spec, value)
        for spec, value in zip(specs, values, strict=True)
    ]


def _targets(
    kernel: Kernel,
    before: Sequence[Array],
    inputs: Sequence[Memory | None],
    inplace: Mapping[int, int],
) -> list[Memory]:
    """Where the outputs go: over an input (inplace: {output: input}) or over what was before."""
    targets = []
    for index, value in enumerate(before):
        spec = kernel.outputs[index]
        memory = inputs[inplace[index]] if index in inplace else None
        if memory is None:
            memory = Memory(spec or spec_of(value), value)
        else:
            assert spec is not None
            assert memory.spec.same_bytes(spec) or spec.layout == PLAIN
            memory = _reshaped(memory, spec)
        targets.append(memory)
    return targets


def _reshaped(memory: Memory, spec: TensorSpec) -> Memory:
    view = Memory(spec)
    view._owner, view.bytes = memory._owner, memory.bytes
    return view


def forward(
    implementation: Implementation,
    prop: AnyProperty,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    requests: Sequence[OpReqType] | None = None,
    inplace: Mapping[int, int] | None = None,
    threads: int = 1,
    is_train: bool = True,
) -> ForwardRun | None:
    """One forward call onto `outputs`' content; None when it is declined.

    inputs: arguments and auxiliary states; random numbers are those of RANDOM and STREAM.
    """
    requests = requests or [OpReqType.WRITE] * len(outputs)
    if any(request.kind is ResourceKind.RANDOM for request in resources(prop, inputs)):
        inputs = [*inputs, np.array(RANDOM, np.int64)]
    request = ForwardRequest(
        tuple(map(spec_of, inputs)),
        tuple(map(spec_of, outputs)),
        tuple(requests),
        is_train,
        threads,
        STREAM,
    )
    kernel = implementation.prepare_forward(prop, request)
    if kernel is None:
        return None
    memories = _laid_out(kernel.inputs, inputs)
    targets = _targets(kernel, outputs, memories, inplace or {})
    extra = [Memory(spec) for spec in kernel.extra_outputs]
    execute(kernel, memories, targets, extra)
    return ForwardRun(kernel, [target.load() for target in targets], extra)


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
        return [*self.out_grad, *self.in_data, *self.out_data]


def declared(prop: AnyProperty, data: BackwardData) -> set[int]:
    """Positions in `data.all` of what the property says backward reads."""
    first, second = len(data.out_grad), len(data.out_grad) + len(data.in_data)
    positions = range(len(data.all))
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
    threads: int = 1,
) -> list[Array]:
    """One backward call; what is undeclared is absent, or with `poison` present and all NaN."""
    requests = requests or default_requests(prop)
    needed = declared(prop, data)
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
        threads,
    )
    kernel = implementation.prepare_backward(prop, request)
    assert kernel is not None, f"{implementation.name} has a forward without this backward"
    memories = _laid_out(kernel.inputs[: len(values)], values)
    targets = _targets(kernel, before, memories, inplace or {})
    extra = forward_run.extra[: len(kernel.inputs) - len(values)]
    execute(kernel, [*memories, *extra], targets)
    return [target.load() for target in targets]


def default_requests(prop: AnyProperty) -> list[OpReqType]:
    """WRITE for every input with a gradient."""
    return [
        OpReqType.WRITE if kind is GradientKind.COMPUTES else OpReqType.NULL
        for kind in prop.list_gradients()
    ]


def _poisoned(value: Array) -> Array:
    fill = np.nan if np.issubdtype(value.dtype, np.floating) else np.iinfo(value.dtype).max
    return np.full_like(value, fill)


def filled(shapes: Sequence[Sequence[int]], value: float, dtype: str) -> list[Array]:
    """Arrays of one value."""
    return [np.full(shape, value, dtype) for shape in shapes]
