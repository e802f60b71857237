"""oneDNN primitives: selection of an implementation, then binding to addresses.

Each is made for one thread, and runs on the one that calls it.

Scratchpads are always provided by the caller (`dnnl_scratchpad_mode_user`), so that they can be
planned. Implementations named `gemm` allocate memory during execution and are refused. Reference
implementations are selected only if there is no other.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_char_p, c_void_p
from dataclasses import replace
from enum import IntEnum

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.base.once import once
from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.call import ALONE_WORKER, NativeCall, TaskThreads, is_moving
from mxrun.device.cpu.onednn.descriptor import IDENTITY, DescriptorView, describe, spec_of
from mxrun.device.cpu.onednn.library import (
    LAST_IMPLEMENTATION,
    SUCCESS,
    UNIMPLEMENTED,
    Library,
    OwnedObject,
    require,
)
from mxrun.operator.constraints import (
    UNCONSTRAINED,
    ImplementationConstraints,
    Unsupported,
)

FORWARD_TRAINING = 64
FORWARD_INFERENCE = 96

_QUERY_IMPLEMENTATION = 8
_QUERY_ARGUMENT_DESCRIPTOR = 255
_USER_SCRATCHPAD = 1
_RECTIFIER = 0x20
_CLIP = 0x2F
_SAME_TYPE = 0


class Argument(IntEnum):
    """Roles of a primitive's tensors (DNNL_ARG_*)."""

    SOURCE = 1
    OUTPUT = 17
    WEIGHTS = 33
    BIAS = 41
    WORKSPACE = 64
    SCRATCHPAD = 80
    SOURCE_GRAD = 129
    OUTPUT_GRAD = 145
    WEIGHTS_GRAD = 161


@dataclass(frozen=True)
class Sum:
    """Post-operation that adds the previous content of the output."""


@dataclass(frozen=True)
class Clip:
    """Post-operation that clips the output to [low, high]; NaN becomes one of them."""

    low: float
    high: float = math.inf


PostOperation = Sum | Clip


@dataclass(frozen=True)
class ArgumentSpec:
    """Requested spec of one argument, and the view on it."""

    spec: TensorSpec
    view: DescriptorView = IDENTITY

    @property
    def handle(self) -> int:
        """Handle of the memory descriptor."""
        return describe(self.spec, self.view).value


class _ExecutionArgument(ctypes.Structure):
    """dnnl_exec_arg_t."""

    _fields_ = [("argument", ctypes.c_int), ("memory", c_void_p)]


@dataclass(frozen=True)
class BoundArguments:
    """Arguments of a primitive at their places.

    entries: dnnl_exec_arg_t of each. memories: what they refer to. placing: calls for moving
    addresses. scratchpad: handle of the scratchpad's memory object, 0 if there is none.
    """

    entries: ctypes.Array[_ExecutionArgument]
    memories: tuple[OwnedObject, ...]
    placing: tuple[NativeCall, ...]
    scratchpad: int


class Primitive:
    """One prepared computation.

    implementation: oneDNN's name of the selected code.
    specs: the spec of every argument, with the layouts that oneDNN chose.
    scratchpad_bytes: scratch memory needed during a call.
    """

    def __init__(self, source: _Implementations, found: _Candidate) -> None:
        self.implementation = found.implementation
        self.specs = found.specs
        self.descriptor = found.descriptor
        self.scratchpad_bytes = found.scratchpad_bytes
        self._source = source
        self._primitive = once(self._created)

    def _created(self) -> OwnedObject:
        """Return the handle of the primitive, made at binding, when oneDNN generates its code."""
        library = require()
        library.use_one_thread()
        handle = library.create("dnnl_primitive_create", self.descriptor.value)
        return OwnedObject(library, "dnnl_primitive_destroy", handle)

    @property
    def is_reference(self) -> bool:
        """Return whether this is oneDNN's reference code, correct but hundreds of times slower."""
        return _is_reference(self.implementation)

    def alternatives(self) -> tuple[str, ...]:
        """Return the names of all admissible implementations, in oneDNN's order of preference.

        Reference code is excluded, unless this primitive is reference code because there is no
        other.
        """
        require().use_one_thread()
        found = [each.implementation for each in self._source.admissible(references=False)]
        return tuple(dict.fromkeys(found or [self.implementation]))

    def bind(
        self, addresses: Mapping[int, int], scratchpad: int = 0, workers: TaskThreads = ALONE_WORKER
    ) -> tuple[NativeCall, ...]:
        """Return the native calls that run this primitive on memory at the given addresses.

        That is one call, after a call for each moving address that tells oneDNN where it is.
        workers: not used, because a primitive is one task. Raises InternalError if an argument's
        address is missing.
        """
        bound, library = self.bound(addresses, scratchpad), require()
        entries = bound.entries
        arguments = (self.handle, library.stream, len(entries), ctypes.addressof(entries))
        execute = NativeCall(library.execute, arguments, (self, bound), checked=True)
        return (*bound.placing, execute)

    @property
    def handle(self) -> int:
        """Handle of the primitive, made when it is first needed."""
        return self._primitive().value

    def bound(self, addresses: Mapping[int, int], scratchpad: int) -> BoundArguments:
        """Return the arguments at the given addresses."""
        library = require()
        places = {argument: addresses.get(argument, 0) for argument in self.specs}
        if self.scratchpad_bytes:
            places[Argument.SCRATCHPAD] = scratchpad
        missing = [argument for argument, address in places.items() if not address]
        if missing:
            raise InternalError(f"{self.implementation}: no address for {missing}")
        entries = (_ExecutionArgument * len(places))()
        memories, placing, pad = [], [], 0
        for entry, (argument, address) in zip(entries, places.items(), strict=True):
            form = _argument_descriptor(self.descriptor.value, argument)
            memory = library.create("dnnl_memory_create", form, library.engine, address)
            memories.append(OwnedObject(library, "dnnl_memory_destroy", memory))
            entry.argument, entry.memory = int(argument), memory
            if argument == Argument.SCRATCHPAD:
                pad = memory
            if is_moving(address):
                placing.append(NativeCall(library.place, (memory, address), None, checked=True))
        return BoundArguments(entries, tuple(memories), tuple(placing), pad)


def build(
    name: str,
    arguments: tuple[object, ...],
    requested: Mapping[int, ArgumentSpec],
    after: Sequence[PostOperation] = (),
    constraints: ImplementationConstraints = UNCONSTRAINED,
) -> Primitive:
    """Prepare the primitive of `dnnl_<name>_primitive_desc_create(*arguments, attributes)`.

    after: post-operations on the output, in order. constraints: limits on the implementation.
    Raises Unsupported if there is none.
    """
    library = require()
    attributes = _attributes(library, after)

    def create() -> OwnedObject:
        result = c_void_p()
        call = f"dnnl_{name}_primitive_desc_create"
        status = library.status(call, ctypes.byref(result), *arguments, attributes.value)
        if status == UNIMPLEMENTED:
            raise Unsupported(f"{call}: not implemented for {_listing(requested)}")
        library.check(call, status)
        return OwnedObject(library, "dnnl_primitive_desc_destroy", result.value or 0)

    source = _Implementations(create, requested, constraints)
    library.use_one_thread()
    return Primitive(source, source.choose())


def workspace_of(primitive_descriptor: OwnedObject) -> TensorSpec | None:
    """Return the spec of the workspace that training forward passes to backward, or None."""
    library = require()
    form = _argument_descriptor(primitive_descriptor.value, Argument.WORKSPACE)
    size = library.memory_size(form) if form else 0
    return TensorSpec((size,), "uint8") if size else None


@dataclass(frozen=True)
class _Candidate:
    """One of oneDNN's implementations of a computation."""

    descriptor: OwnedObject
    implementation: str
    specs: dict[int, TensorSpec]
    scratchpad_bytes: int


@dataclass(frozen=True)
class _Implementations:
    """The implementations that oneDNN has for one computation."""

    create: Callable[[], OwnedObject]
    requested: Mapping[int, ArgumentSpec]
    constraints: ImplementationConstraints

    def choose(self) -> _Candidate:
        """Return the first implementation that satisfies the constraints, reference code last.

        Raises Unsupported if there is none.
        """
        for references in (False, True):
            for found in self.admissible(references):
                if self.constraints.name in (None, found.implementation):
                    return found
        seen = [implementation for _, implementation in self._walk()]
        raise Unsupported(
            f"no admissible implementation among {seen} for {_listing(self.requested)}"
        )

    def admissible(self, references: bool) -> Iterator[_Candidate]:
        """Yield the implementations within the scratch limit, or else those with the least scratch.

        references: whether to yield reference implementations, or the others. Each result is valid
        until the next is requested.
        """
        sizes = []
        for found in self._admissible(references):
            sizes.append(found.scratchpad_bytes)
            if self.constraints.permits(found.scratchpad_bytes):
                yield found
        if sizes and not self.constraints.permits(min(sizes)):
            least = replace(self, constraints=replace(self.constraints, scratch_bytes=min(sizes)))
            yield from least.admissible(references)

    def _admissible(self, references: bool) -> Iterator[_Candidate]:
        for descriptor, implementation in self._walk():
            if not _allocates(implementation) and _is_reference(implementation) == references:
                specs = _specs(descriptor, self.requested)
                if specs is not None:
                    scratchpad = _scratchpad_bytes(descriptor)
                    yield _Candidate(descriptor, implementation, specs, scratchpad)

    def _walk(self) -> Iterator[tuple[OwnedObject, str]]:
        library = require()
        descriptor = self.create()
        status = SUCCESS
        while status == SUCCESS:
            yield descriptor, _implementation(library, descriptor)
            status = library.status("dnnl_primitive_desc_next_impl", descriptor.value)
        if status != LAST_IMPLEMENTATION:
            library.check("dnnl_primitive_desc_next_impl", status)


def _is_reference(implementation: str) -> bool:
    return implementation.startswith("ref")


def _scratchpad_bytes(descriptor: OwnedObject) -> int:
    form = _argument_descriptor(descriptor.value, Argument.SCRATCHPAD)
    return require().memory_size(form) if form else 0


def _allocates(implementation: str) -> bool:
    return implementation.startswith("gemm") or ":gemm" in implementation


def _specs(
    descriptor: OwnedObject, requested: Mapping[int, ArgumentSpec]
) -> dict[int, TensorSpec] | None:
    specs: dict[int, TensorSpec] = {}
    for argument, request in requested.items():
        form = _argument_descriptor(descriptor.value, argument)
        spec = spec_of(form, request.spec, request.view)
        if spec is None:
            return None
        specs[argument] = spec
    workspace = workspace_of(descriptor)
    if workspace is not None:
        specs[Argument.WORKSPACE] = workspace
    return specs


def _attributes(library: Library, after: Sequence[PostOperation]) -> OwnedObject:
    value = library.create("dnnl_primitive_attr_create")
    attributes = OwnedObject(library, "dnnl_primitive_attr_destroy", value)
    library.call("dnnl_primitive_attr_set_scratchpad_mode", value, _USER_SCRATCHPAD)
    chain = OwnedObject(library, "dnnl_post_ops_destroy", library.create("dnnl_post_ops_create"))
    for operation in after:
        if isinstance(operation, Sum):
            library.call("dnnl_post_ops_append_sum", chain.value, 1.0, 0, _SAME_TYPE)
        elif math.isinf(operation.high) and operation.low == 0:
            library.call("dnnl_post_ops_append_eltwise", chain.value, _RECTIFIER, 0.0, 0.0)
        else:
            limits = (operation.low, operation.high)
            library.call("dnnl_post_ops_append_eltwise", chain.value, _CLIP, *limits)
    library.call("dnnl_primitive_attr_set_post_ops", value, chain.value)
    return attributes


def _implementation(library: Library, descriptor: OwnedObject) -> str:
    result = c_char_p()
    query = (_QUERY_IMPLEMENTATION, 0, ctypes.byref(result))
    library.call("dnnl_primitive_desc_query", descriptor.value, *query)
    return (result.value or b"").decode()


def _argument_descriptor(primitive_descriptor: int, argument: int) -> int:
    result = c_void_p()
    query = (_QUERY_ARGUMENT_DESCRIPTOR, int(argument), ctypes.byref(result))
    require().call("dnnl_primitive_desc_query", primitive_descriptor, *query)
    return result.value or 0


def _listing(requested: Mapping[int, ArgumentSpec]) -> str:
    return ", ".join(f"{int(argument)}: {request.spec}" for argument, request in requested.items())
