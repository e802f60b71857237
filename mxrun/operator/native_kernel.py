"""Kernels composed of parts that run in sequence: compiled loops, and kernels of a library.

An implementation describes its parts in terms of slots (the i-th input, output or extra output).
This module assigns scratch space to the parts and builds a `Kernel` from them. Parts that cannot
add to their output compute it in scratch space, from where it is then added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import FLOAT32
from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec, align
from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.jit import NativeCode, native
from mxrun.codegen.loops import elements_of_task
from mxrun.operator.kernel import Handles, Kernel, OpReqType
from mxrun.operator.launch import Array, Handle, Launch, LoopLaunch


@dataclass(frozen=True)
class Slot:
    """Tensor of a kernel, from `offset` bytes on.

    group: inputs, outputs or extra_outputs of its Handles.
    """

    group: str
    index: int
    offset: int = 0

    def handle(self, handles: Handles) -> Handle | None:
        """Return the handle of the tensor's byte `offset`; None if the tensor is absent."""
        group: tuple[Handle | None, ...] = getattr(handles, self.group)
        handle = group[self.index]
        return None if handle is None else handle + self.offset

    def present(self, handles: Handles) -> Handle:
        """Return the handle; raises InternalError if the tensor is absent."""
        handle = self.handle(handles)
        if handle is None:
            raise InternalError(f"a part of a kernel reads {self}, which is absent")
        return handle


@dataclass(frozen=True)
class Pitch:
    """Row pitch of an input or output, in elements: `width` if the tensor is contiguous."""

    slot: Slot
    width: int

    def elements(self, handles: Handles) -> int:
        """Return the row pitch of the tensor."""
        handle = self.slot.handle(handles)
        return (0 if handle is None else handle.pitch) or self.width


def source(index: int) -> Slot:
    """Return the slot of the kernel's input `index`."""
    return Slot("inputs", index)


def target(index: int) -> Slot:
    """Return the slot of the kernel's output `index`."""
    return Slot("outputs", index)


def extra(index: int) -> Slot:
    """Return the slot of the kernel's extra output `index`."""
    return Slot("extra_outputs", index)


class KernelPart(Protocol):
    """Part of a kernel whose tensors have no places yet."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch space that the launches need."""

    def slots(self) -> Iterator[Slot]:
        """Yield the kernel's tensors that the part reads or writes."""

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Return the launches on tensors at the handles."""


@dataclass(frozen=True)
class Scratch:
    """Scratch space of a loop, from `offset` bytes on."""

    offset: int = 0


# Where a tensor of a generated map is; an array is a tensor of constants.
Place: TypeAlias = Slot | Scratch | Array


def bound(argument: Any, handles: Handles, scratch: Handle | None = None) -> Any:
    """Return the value of a loop's argument: a handle, a row pitch, or the argument itself."""
    if isinstance(argument, Slot):
        return argument.handle(handles)
    if isinstance(argument, Scratch):
        if scratch is None:
            raise InternalError("a loop uses scratch space that its part does not request")
        return scratch + argument.offset
    return argument.elements(handles) if isinstance(argument, Pitch) else argument


@dataclass(frozen=True)
class LoopPart:
    """Compiled loop; a Slot among its arguments is replaced by that tensor's handle.

    arguments: of a generated map, the slots themselves.
    """

    function: NativeCode
    arguments: Arguments | tuple[Place | float | int, ...]
    tasks: int
    scratch_bytes: int = 0

    def slots(self) -> Iterator[Slot]:
        """Yield the slots among the arguments, also those in tables."""
        given = self.arguments
        for value in given if isinstance(given, tuple) else vars(given).values():
            yield from (
                each
                for each in (value if isinstance(value, tuple) else (value,))
                if isinstance(each, Slot)
            )

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Bind the loop."""
        arguments: Any
        if isinstance(self.arguments, Arguments):
            arguments = self.arguments.with_values(lambda value: bound(value, handles, scratch))
        else:
            arguments = tuple(bound(argument, handles, scratch) for argument in self.arguments)
        return (LoopLaunch(self.function, arguments, self.tasks),)


@dataclass(frozen=True)
class JoinedPart:
    """Parts in order on one scratch space: what one leaves there, the next finds."""

    parts: tuple[KernelPart, ...]

    @property
    def scratch_bytes(self) -> int:
        """Largest scratch space of a part."""
        return max(part.scratch_bytes for part in self.parts)

    def slots(self) -> Iterator[Slot]:
        """Yield the parts' slots."""
        for part in self.parts:
            yield from part.slots()

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Return the parts' launches."""
        return tuple(launch for part in self.parts for launch in part.launches(handles, scratch))


class Addition(Arguments):
    """Arguments of `add_loop`."""

    count: Integer
    source: Float32s
    target: Float32s


@native
def add_loop(call: Addition) -> None:
    """Compute target[i] += source[i]."""
    for i in elements_of_task(call.count):
        call.target[i] += call.source[i]


def native_kernel(
    implementation: str,
    parts: Sequence[KernelPart],
    inputs: tuple[TensorSpec | None, ...],
    outputs: tuple[TensorSpec | None, ...],
    requests: Sequence[OpReqType],
    device: DeviceDescription,
    *,
    extra_outputs: tuple[TensorSpec, ...] = (),
    flops: int = 0,
    bytes_moved: int | None = None,
    adding: Mapping[int, Callable[[], Kernel | None]] | None = None,
) -> Kernel:
    """Build a kernel that runs the parts in order.

    bytes_moved: bytes read and written; by default the sum of all tensors. adding: as in Kernel.

    An output with the add-to request is computed in scratch space and then added to the output. It
    must be a float32 tensor, else InternalError is raised. If all requests are null, nothing is
    launched.
    """
    outputs = tuple(
        None if req is OpReqType.NULL else spec for spec, req in zip(outputs, requests, strict=True)
    )
    if not any(outputs):
        parts = ()
    _require_inputs(implementation, parts, inputs)
    workspace_bytes = align(max((part.scratch_bytes for part in parts), default=0))
    added: list[_Added] = []
    for index, spec in enumerate(outputs):
        if spec is not None and requests[index] is OpReqType.ADD:
            if spec.dtype != FLOAT32:
                raise InternalError(f"{implementation} can add only to float32, not to {spec}")
            added.append(_Added(index, workspace_bytes, spec.nbytes // 4))
            workspace_bytes += align(spec.nbytes)

    specs = (*inputs, *outputs, *extra_outputs)
    return Kernel(
        implementation=implementation,
        inputs=inputs,
        outputs=outputs,
        bind=lambda handles: _launches(parts, added, device, handles),
        extra_outputs=extra_outputs,
        workspace_bytes=workspace_bytes,
        flops=flops,
        bytes_moved=(
            sum(spec.nbytes for spec in specs if spec is not None)
            if bytes_moved is None
            else bytes_moved
        ),
        adding=adding or {},
    )


def _require_inputs(
    implementation: str, parts: Sequence[KernelPart], inputs: Sequence[TensorSpec | None]
) -> None:
    """Raise InternalError if a part reads an input that the kernel says it does not read."""
    for part in parts:
        for slot in part.slots():
            if slot.group == "inputs" and inputs[slot.index] is None:
                raise InternalError(
                    f"a part of {implementation} reads input {slot.index}, which is None among "
                    "the kernel's inputs"
                )


@dataclass(frozen=True)
class _Added:
    """Output with the add-to request: `count` floats computed at `offset` in scratch space."""

    index: int
    offset: int
    count: int


def _launches(
    parts: Sequence[KernelPart],
    added: Sequence[_Added],
    device: DeviceDescription,
    handles: Handles,
) -> tuple[Launch, ...]:
    """Return the parts' launches, followed by the additions."""
    outputs = list(handles.outputs)
    for output in added:
        assert handles.workspace is not None
        outputs[output.index] = handles.workspace + output.offset
    redirected = replace(handles, outputs=tuple(outputs))
    launches: list[Launch] = []
    for part in parts:
        launches += part.launches(redirected, handles.workspace)
    for output in added:
        addition = Addition(
            count=output.count,
            source=outputs[output.index],
            target=handles.outputs[output.index],
        )
        launches.append(LoopLaunch(add_loop, addition, device.tasks_for_elements(output.count)))
    return tuple(launches)
