"""Kernels composed of oneDNN primitives and compiled loops that run in sequence.

An implementation describes its calls in terms of slots (the i-th input, output or extra output).
This module assigns scratch space to the calls and builds a `Kernel` from them. oneDNN's backward
primitives have no add-to request: this module computes their result in scratch space and then adds
it to the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from mxrun.backend import jit
from mxrun.backend.arguments import Arguments, Float32s, Integer
from mxrun.backend.call import NativeCall
from mxrun.backend.jit import native, share
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
    """Tensor of a kernel, from `offset` bytes on.

    group: inputs, outputs or extra_outputs of its Buffers.
    """

    group: str
    index: int
    offset: int = 0

    def address(self, buffers: Buffers) -> int:
        """Return the address of the tensor's byte `offset`."""
        addresses: tuple[int, ...] = getattr(buffers, self.group)
        return addresses[self.index] + self.offset


@dataclass(frozen=True)
class Pitch:
    """Row pitch of an input or output, in elements: `width` if the tensor is contiguous."""

    slot: Slot
    width: int

    def elements(self, buffers: Buffers) -> int:
        """Return the row pitch of the tensor in `buffers`."""
        inputs = self.slot.group == "inputs"
        pitches = buffers.input_pitches if inputs else buffers.output_pitches
        return (pitches[self.slot.index] if pitches else 0) or self.width


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
    """Part of a kernel whose tensors have no addresses yet."""

    @property
    def team(self) -> int | None:
        """Thread team size that must be set for the calls; None if they start their own team."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch space that the calls need."""

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Return the calls for tensors at the buffers' addresses."""


@dataclass(frozen=True)
class PrimitivePart:
    """oneDNN primitive, or several that replace one, with the slot of each argument."""

    primitive: Computation
    slots: Mapping[Argument, Slot]

    @property
    def team(self) -> int:
        """Team size for which the primitive was prepared."""
        return self.primitive.threads

    @property
    def scratch_bytes(self) -> int:
        """Size of the primitive's scratchpad."""
        return self.primitive.scratchpad_bytes

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Bind the primitive."""
        addresses: dict[int, int] = {
            argument: slot.address(buffers) for argument, slot in self.slots.items()
        }
        bound = self.primitive.bind(addresses, scratch)
        return (bound,) if isinstance(bound, NativeCall) else bound


@dataclass(frozen=True)
class RowReductionPart:
    """Sum over the rows of a matrix, by the backend's fastest method."""

    column_sum: ColumnSum
    source: Slot
    target: Slot

    @property
    def team(self) -> int:
        """Team size for which the products were prepared."""
        return self.column_sum.threads

    @property
    def scratch_bytes(self) -> int:
        """Size of the partial sums and scratchpads."""
        return self.column_sum.scratchpad_bytes

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Bind the sum."""
        addresses = (self.source.address(buffers), self.target.address(buffers))
        return self.column_sum.bind(*addresses, scratch)


@dataclass(frozen=True)
class Scratch:
    """Scratch space of a loop, from `offset` bytes on."""

    offset: int = 0


@dataclass(frozen=True)
class Code:
    """Machine code that a loop calls, compiled when the loop is bound."""

    function: jit.NativeCode


# Where a tensor of a generated map is; an integer is an address.
Place: TypeAlias = Slot | Scratch | int


def bound(argument: Any, buffers: Buffers, scratch: int = 0) -> Any:
    """Return the value of a loop's argument: an address, a row pitch, or the argument itself."""
    if isinstance(argument, Code):
        return argument.function.address
    if isinstance(argument, Slot):
        return argument.address(buffers)
    if isinstance(argument, Scratch):
        return scratch + argument.offset
    return argument.elements(buffers) if isinstance(argument, Pitch) else argument


@dataclass(frozen=True)
class LoopPart:
    """Compiled loop; a Slot among its arguments is replaced by that tensor's address.

    arguments: of a generated map, the slots themselves.
    """

    function: jit.NativeCode
    arguments: Arguments | tuple[Place, ...]
    threads: int
    scratch_bytes: int = 0

    @property
    def team(self) -> None:
        """None: the loop starts its own team."""
        return

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Bind the loop."""
        if isinstance(self.arguments, Arguments):
            named = self.arguments.with_values(lambda value: bound(value, buffers, scratch))
            return (jit.bind(self.function, named, self.threads),)
        arguments = tuple(bound(argument, buffers, scratch) for argument in self.arguments)
        return (jit.bind(self.function, arguments, self.threads),)


class Addition(Arguments):
    """Arguments of `add_loop`."""

    count: Integer
    source: Float32s
    target: Float32s


@native
def add_loop(call: Addition) -> None:
    """Compute target[i] += source[i]."""
    begin, end = share(call.count)
    for i in range(begin, end):
        call.target[i] += call.source[i]


def onednn_serves(*specs: TensorSpec, low: bool = False) -> bool:
    """Return whether oneDNN is available and supports the specs.

    Every tensor must be float32 (with `low`: or bfloat16) and not empty.
    """
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
    """Build a kernel that runs the parts' calls in order.

    bytes_moved: bytes read and written; by default the sum of all tensors. adding: as in Kernel.

    An output with the add-to request is computed in scratch space and then added to the output. It
    must be a float32 tensor, else InternalError is raised. If all requests are null, nothing is
    called.
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


def _require_inputs(
    implementation: str, parts: Sequence[KernelPart], inputs: Sequence[TensorSpec | None]
) -> None:
    """Raise InternalError if a part reads an input that the kernel says it does not read.

    Its address would be 0.
    """
    for part in parts:
        for value in _places_of(part):
            if isinstance(value, Slot) and value.group == "inputs" and inputs[value.index] is None:
                raise InternalError(
                    f"a part of {implementation} reads input {value.index}, which is None among "
                    "the kernel's inputs"
                )


def _places_of(part: KernelPart) -> Iterator[object]:
    """Yield the arguments of a loop, also those in tables, or the slots of a primitive."""
    if isinstance(part, PrimitivePart):
        yield from part.slots.values()
    elif isinstance(part, LoopPart):
        given = part.arguments
        for value in given if isinstance(given, tuple) else vars(given).values():
            yield from value if isinstance(value, tuple) else (value,)


class GradientParts:
    """oneDNN parts of a backward kernel, added one by one for the requested gradients.

    Slots are numbered like the kernel's inputs (out_grad, in_data, out_data, the forward kernel's
    extra outputs) and outputs (in_grad). A tensor has the layout that its parts require. A tensor
    that no part uses is absent.
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

    def is_requested(self, index: int) -> bool:
        """Return whether input `index` exists and its gradient is requested."""
        requests = self._request.requests
        return index < len(requests) and requests[index] is not OpReqType.NULL

    def add_primitive(self, primitive: Computation, slots: Mapping[Argument, Slot]) -> None:
        """Add a primitive; its specs decide layouts and dtypes, but their shapes may differ."""
        for argument, slot in slots.items():
            spec = primitive.specs[argument]
            self._use(slot, spec.layout, spec.dtype)
        self._add(primitive.implementation, PrimitivePart(primitive, slots))

    def add_column_sum(self, matrix: Slot, layout: Layout, total: Slot) -> None:
        """Add `total` = sum over the rows of `matrix`; a row has total's size.

        `layout` is the layout in which the matrix is read. Its dtype is the one in which another
        part reads it, else the one in which it is stored.
        """
        spec = self._use(matrix, layout)
        columns = self._use(total, PLAIN, FLOAT32).elements
        team = team_for_elements(spec.elements, self._request.threads)
        prepared = column_sum(spec.elements // columns, columns, team, spec.dtype)
        self._add(prepared.implementation, RowReductionPart(prepared, matrix, total))

    def kernel(self, flops: int) -> Kernel:
        """Return the kernel of all parts in the order in which they were added."""
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
            raise InternalError(f"two parts require {slot} as {known} and as {spec}")
        return spec


@dataclass(frozen=True)
class _Added:
    """Output with the add-to request: `count` floats computed at `offset` in scratch space."""

    index: int
    offset: int
    count: int


def _calls(
    parts: Sequence[KernelPart], added: Sequence[_Added], threads: int, buffers: Buffers
) -> tuple[NativeCall, ...]:
    """Return the parts' calls, each with its own team size, followed by the additions."""
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
        addition = Addition(
            count=output.count,
            source=addresses[output.index],
            target=buffers.outputs[output.index],
        )
        calls.append(jit.bind(add_loop, addition, team_for_elements(output.count, threads)))
    return tuple(calls)
