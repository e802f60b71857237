"""Kernels made of oneDNN primitives and compiled loops, run one after the other.

An implementation describes its calls over slots (the i-th input, output or extra output); this
module gives them their scratch, turns them into a `Kernel`, and serves the add-to request, which
oneDNN's backward primitives do not know, by computing beside the output and adding after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mxrun.backend import jit
from mxrun.backend.call import NativeCall
from mxrun.backend.jit import Block, float32s, integer, native, share
from mxrun.backend.onednn import library
from mxrun.backend.onednn.backward_convolution import Computation
from mxrun.backend.onednn.operations import ColumnSum, column_sum
from mxrun.backend.onednn.primitive import Argument
from mxrun.backend.team import set_threads_call, team_for_elements
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import InternalError
from mxrun.base.tensor import PLAIN, Layout, TensorSpec, align
from mxrun.operator.kernel import BackwardRequest, Buffers, Kernel, OpReqType


@dataclass(frozen=True)
class Slot:
    """One tensor of a kernel: `group` is inputs, outputs or extra_outputs of its Buffers."""

    group: str
    index: int

    def address(self, buffers: Buffers) -> int:
        """Where the tensor lies."""
        addresses: tuple[int, ...] = getattr(buffers, self.group)
        return addresses[self.index]


@dataclass(frozen=True)
class Pitch:
    """Elements from one row of an input or output to the next: `width` where it is one piece."""

    slot: Slot
    width: int

    def elements(self, buffers: Buffers) -> int:
        """As the tensor lies."""
        inputs = self.slot.group == "inputs"
        pitches = buffers.input_pitches if inputs else buffers.output_pitches
        return (pitches[self.slot.index] if pitches else 0) or self.width


def source(index: int) -> Slot:
    """The kernel's input `index`."""
    return Slot("inputs", index)


def target(index: int) -> Slot:
    """The kernel's output `index`."""
    return Slot("outputs", index)


def extra(index: int) -> Slot:
    """The kernel's extra output `index`."""
    return Slot("extra_outputs", index)


class KernelPart(Protocol):
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
    """A oneDNN primitive, or several in one's place, with the slot of each argument."""

    primitive: Computation
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
        bound = self.primitive.bind(addresses, scratch)
        return (bound,) if isinstance(bound, NativeCall) else bound


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


def bound(argument: Slot | Pitch | int | float, buffers: Buffers) -> int | float:
    """What a loop is given for an argument."""
    if isinstance(argument, Slot):
        return argument.address(buffers)
    return argument.elements(buffers) if isinstance(argument, Pitch) else argument


@dataclass(frozen=True)
class LoopPart:
    """A compiled loop; among its arguments, a Slot stands for that tensor's address."""

    function: jit.NativeCode
    arguments: tuple[Slot | Pitch | int | float, ...]
    threads: int
    scratch_bytes: int = 0

    @property
    def team(self) -> None:
        """None: the loop starts its own."""
        return

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Bind the loop; with scratch, its address is the last argument."""
        arguments = [bound(argument, buffers) for argument in self.arguments]
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


def onednn_serves(*specs: TensorSpec, low: bool = False) -> bool:
    """Whether oneDNN is there and every tensor is float32 (`low`: or bfloat16) and not empty."""
    types = (FLOAT32, BFLOAT16) if low else (FLOAT32,)
    return library.load() is not None and all(
        spec.dtype in types and spec.elements for spec in specs
    )


def native_kernel(
    implementation: str,
    parts: Sequence[KernelPart],
    inputs: tuple[TensorSpec | None, ...],
    outputs: tuple[TensorSpec | None, ...],
    requests: Sequence[OpReqType],
    threads: int,
    *,
    extra_outputs: tuple[TensorSpec, ...] = (),
    flops: int = 0,
    bytes_moved: int | None = None,
    adding: Mapping[int, Callable[[], Kernel | None]] | None = None,
) -> Kernel:
    """A kernel that makes the parts' calls in order.

    bytes_moved: where it is not all of the tensors. adding: as Kernel has it.

    An output under the add-to request is computed in scratch and then added to what was there; it
    must be a float32 tensor, else InternalError. Where no output is asked for, nothing is called.
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
            if spec.dtype != FLOAT32:
                raise InternalError(f"{implementation} adds to float32 alone, not to {spec}")
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
        bytes_moved=(
            sum(spec.nbytes for spec in specs if spec is not None)
            if bytes_moved is None
            else bytes_moved
        ),
        adding=adding or {},
    )


class GradientParts:
    """The oneDNN parts of a backward kernel, added one by one for the gradients that are wanted.

    Slots count as the kernel's inputs (out_grad, in_data, out_data, the forward kernel's extra
    outputs) and outputs (in_grad) do. A tensor has the layout that its parts ask for; one that no
    part touches is absent.
    """

    def __init__(self, request: BackwardRequest) -> None:
        groups = (request.out_grad, request.in_data, request.out_data)
        read = [spec for group in groups for spec in group]
        read += request.forward.extra_outputs
        self._request = request
        self._sources = tuple(source(index) for index in range(len(read)))
        self._targets = tuple(target(index) for index in range(len(request.in_grad)))
        self._given = dict(
            zip((*self._sources, *self._targets), (*read, *request.in_grad), strict=True)
        )
        self._specs: dict[Slot, TensorSpec] = {}
        self._parts: list[KernelPart] = []
        self._names: list[str] = []

    def wants(self, index: int) -> bool:
        """Whether there is an input `index` whose gradient was asked for."""
        requests = self._request.requests
        return index < len(requests) and requests[index] is not OpReqType.NULL

    def add_primitive(self, primitive: Computation, slots: Mapping[Argument, Slot]) -> None:
        """Run a primitive; layouts and types of its specs count, it may see other shapes."""
        for argument, slot in slots.items():
            spec = primitive.specs[argument]
            self._use(slot, spec.layout, spec.dtype)
        self._add(primitive.implementation, PrimitivePart(primitive, slots))

    def add_column_sum(self, matrix: Slot, layout: Layout, total: Slot) -> None:
        """`total` = `matrix`, seen in `layout` as rows of total's size, summed over the rows.

        In the type that another part reads the matrix in, else in that in which it lies.
        """
        spec = self._use(matrix, layout)
        columns = self._use(total, PLAIN, FLOAT32).elements
        team = team_for_elements(spec.elements, self._request.threads)
        prepared = column_sum(spec.elements // columns, columns, team, spec.dtype)
        self._add(prepared.implementation, ColumnSumPart(prepared, matrix, total))

    def kernel(self, flops: int) -> Kernel:
        """All parts in the order they were added."""
        return native_kernel(
            "onednn:" + "+".join(self._names),
            self._parts,
            tuple(self._specs.get(slot) for slot in self._sources),
            tuple(self._specs.get(slot) for slot in self._targets),
            self._request.requests,
            self._request.threads,
            flops=flops,
        )

    def _add(self, name: str, part: KernelPart) -> None:
        self._names.append(name)
        self._parts.append(part)

    def _use(self, slot: Slot, layout: Layout, dtype: str | None = None) -> TensorSpec:
        given = self._given[slot]
        if given is None:
            raise InternalError(f"a part reads {slot}, which backward does not declare")
        known = self._specs.get(slot, given)
        spec = replace(given, layout=layout, dtype=dtype or known.dtype)
        if self._specs.setdefault(slot, spec) != spec:
            raise InternalError(f"two parts want {slot} as {known} and as {spec}")
        return spec


@dataclass(frozen=True)
class _Added:
    """An output under the add-to request: computed at `offset` in scratch, `count` floats."""

    index: int
    offset: int
    count: int


def _calls(
    parts: Sequence[KernelPart], added: Sequence[_Added], threads: int, buffers: Buffers
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
