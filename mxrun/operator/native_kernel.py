"""Kernels made of oneDNN primitives and compiled loops, run one after the other.

An implementation describes its calls over slots (the i-th input, output or extra output); this
module gives them their scratch, turns them into a `Kernel`, and serves the add-to request, which
oneDNN's backward primitives do not know, by computing beside the output and adding after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mxrun.backend import jit
from mxrun.backend.call import NativeCall
from mxrun.backend.jit import Block, float32s, integer, native, share
from mxrun.backend.onednn import library
from mxrun.backend.onednn.operations import ColumnSum
from mxrun.backend.onednn.primitive import Argument, Primitive
from mxrun.backend.team import set_threads_call, team_for_elements
from mxrun.base.tensor import TensorSpec, align
from mxrun.operator.kernel import Buffers, Kernel, OpReqType


@dataclass(frozen=True)
class Slot:
    """One tensor of a kernel: `group` is inputs, outputs or extra_outputs of its Buffers."""

    group: str
    index: int

    def address(self, buffers: Buffers) -> int:
        """Where the tensor lies."""
        addresses: tuple[int, ...] = getattr(buffers, self.group)
        return addresses[self.index]


def source(index: int) -> Slot:
    """The kernel's input `index`."""
    return Slot("inputs", index)


def target(index: int) -> Slot:
    """The kernel's output `index`."""
    return Slot("outputs", index)


def extra(index: int) -> Slot:
    """The kernel's extra output `index`."""
    return Slot("extra_outputs", index)


class Part(Protocol):
    """One piece of a kernel, before its tensors have addresses."""

    @property
    def team(self) -> int | None:
        """The team size the calls must find set; None where they bring their own."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch the calls need."""

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """The calls themselves, for tensors at the buffers' addresses."""


@dataclass(frozen=True)
class PrimitivePart:
    """A oneDNN primitive with the slot of each of its arguments."""

    primitive: Primitive
    slots: Mapping[Argument, Slot]

    @property
    def team(self) -> int:
        """The team the primitive was made for."""
        return self.primitive.threads

    @property
    def scratch_bytes(self) -> int:
        """The primitive's scratchpad."""
        return self.primitive.scratchpad_bytes

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Bind the primitive."""
        addresses: dict[int, int] = {
            argument: slot.address(buffers) for argument, slot in self.slots.items()
        }
        return (self.primitive.bind(addresses, scratch),)


@dataclass(frozen=True)
class ColumnSumPart:
    """The sum of a matrix's rows, as the backend does it best."""

    column_sum: ColumnSum
    source: Slot
    target: Slot

    @property
    def team(self) -> int:
        """The team the products were made for."""
        return self.column_sum.threads

    @property
    def scratch_bytes(self) -> int:
        """Partial sums and scratchpads."""
        return self.column_sum.scratchpad_bytes

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Bind the sum."""
        addresses = (self.source.address(buffers), self.target.address(buffers))
        return self.column_sum.bind(*addresses, scratch)


@dataclass(frozen=True)
class LoopPart:
    """A compiled loop; a Slot among its arguments stands for that tensor's address."""

    function: jit.NativeFunction
    arguments: tuple[Slot | int | float, ...]
    threads: int
    scratch_bytes: int = 0

    @property
    def team(self) -> None:
        """None: the loop starts its own."""
        return

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Bind the loop; with scratch, its address is the last argument."""
        arguments: list[int | float] = [
            argument.address(buffers) if isinstance(argument, Slot) else argument
            for argument in self.arguments
        ]
        if self.scratch_bytes:
            arguments.append(scratch)
        return (jit.bind(self.function, tuple(arguments), self.threads),)


@native
def add_loop(block: Block) -> None:
    """target[i] += source[i]."""
    addend, total = float32s(block, 1), float32s(block, 2)
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        total[i] += addend[i]


def onednn_serves(*specs: TensorSpec) -> bool:
    """Whether oneDNN is there and every tensor is float32 and not empty."""
    return library.load() is not None and all(
        spec.dtype == "float32" and spec.elements for spec in specs
    )


def native_kernel(
    implementation: str,
    parts: Sequence[Part],
    inputs: tuple[TensorSpec | None, ...],
    outputs: tuple[TensorSpec | None, ...],
    requests: Sequence[OpReqType],
    threads: int,
    *,
    extra_outputs: tuple[TensorSpec, ...] = (),
    flops: int = 0,
) -> Kernel:
    """A kernel that makes the parts' calls in order.

    An output under the add-to request is computed in scratch and then added to what was there;
    its spec must be a float32 tensor. Where no output is asked for, nothing is called.
    """
    outputs = tuple(
        None if req is OpReqType.NULL else spec for spec, req in zip(outputs, requests, strict=True)
    )
    if not any(outputs):
        parts = ()
    workspace_bytes = align(max((part.scratch_bytes for part in parts), default=0))
    added: list[_Added] = []
    for index, spec in enumerate(outputs):
        if spec is not None and requests[index] is OpReqType.ADD:
            added.append(_Added(index, workspace_bytes, spec.nbytes // 4))
            workspace_bytes += align(spec.nbytes)

    specs = (*inputs, *outputs, *extra_outputs)
    return Kernel(
        implementation=implementation,
        inputs=inputs,
        outputs=outputs,
        bind=lambda buffers: _calls(parts, added, threads, buffers),
        extra_outputs=extra_outputs,
        workspace_bytes=workspace_bytes,
        flops=flops,
        bytes_moved=sum(spec.nbytes for spec in specs if spec is not None),
    )


@dataclass(frozen=True)
class _Added:
    """An output under the add-to request: computed at `offset` in scratch, `count` floats."""

    index: int
    offset: int
    count: int


def _calls(
    parts: Sequence[Part], added: Sequence[_Added], threads: int, buffers: Buffers
) -> tuple[NativeCall, ...]:
    """The parts' calls, each with the team it was made for, and the additions after them."""
    addresses = list(buffers.outputs)
    for output in added:
        addresses[output.index] = buffers.workspace + output.offset
    redirected = replace(buffers, outputs=tuple(addresses))
    calls: list[NativeCall] = []
    for part in parts:
        own = part.calls(redirected, buffers.workspace)
        if part.team is not None and part.team != threads:
            own = (set_threads_call(part.team), *own, set_threads_call(threads))
        calls += own
    for output in added:
        arguments = (output.count, addresses[output.index], buffers.outputs[output.index])
        calls.append(jit.bind(add_loop, arguments, team_for_elements(output.count, threads)))
    return tuple(calls)
