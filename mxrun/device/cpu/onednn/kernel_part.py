"""Parts of kernels that are oneDNN primitives, for the operators' provider files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import InternalError
from mxrun.base.tensor import Layout, TensorSpec
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.onednn.backward_convolution import Computation
from mxrun.device.cpu.onednn.launch import PrimitiveLaunch
from mxrun.device.cpu.onednn.primitive import Argument
from mxrun.operator.kernel import BackwardRequest, Handles, Kernel, OpReqType
from mxrun.operator.launch import Handle, Launch
from mxrun.operator.native_kernel import KernelPart, Slot, native_kernel, source, target


@dataclass(frozen=True)
class PrimitivePart:
    """oneDNN primitive, or several that replace one, with the slot of each argument."""

    primitive: Computation
    arguments: Mapping[Argument, Slot]

    @property
    def scratch_bytes(self) -> int:
        """Size of the primitive's scratchpad."""
        return self.primitive.scratchpad_bytes

    def slots(self) -> Iterator[Slot]:
        """Yield the slots of the arguments."""
        yield from self.arguments.values()

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Bind the primitive."""
        places: dict[int, Handle] = {
            argument: slot.present(handles) for argument, slot in self.arguments.items()
        }
        return (PrimitiveLaunch(self.primitive, places, scratch),)


def onednn_serves(*specs: TensorSpec, low: bool = False) -> bool:
    """Return whether oneDNN is available and supports the specs.

    Every tensor must be float32 (with `low`: or bfloat16) and not empty.
    """
    types = (FLOAT32, BFLOAT16) if low else (FLOAT32,)
    return library.load() is not None and all(
        spec.dtype in types and spec.elements for spec in specs
    )


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
            self.use(slot, spec.layout, spec.dtype)
        self.add(primitive.implementation, PrimitivePart(primitive, slots))

    def kernel(self, flops: int) -> Kernel:
        """Return the kernel of all parts in the order in which they were added."""
        return native_kernel(
            "onednn:" + "+".join(self._names),
            self._parts,
            tuple(self._specs.get(slot) for slot in self._sources),
            tuple(self._specs.get(slot) for slot in self._targets),
            self._request.requests,
            self._request.device,
            flops=flops,
        )

    def add(self, name: str, *parts: KernelPart) -> None:
        """Add parts whose slots are used as `use` says; `name` becomes one of the kernel's name."""
        self._names.append(name)
        self._parts += parts

    def use(self, slot: Slot, layout: Layout, dtype: str | None = None) -> TensorSpec:
        """Return the spec of a slot that a part uses in a layout.

        dtype: by default that in which another part uses it, else that in which it is stored.
        """
        given = self._given[slot]
        if given is None:
            raise InternalError(f"a part reads {slot}, which backward does not declare")
        known = self._specs.get(slot, given)
        spec = replace(given, layout=layout, dtype=dtype or known.dtype)
        if self._specs.setdefault(slot, spec) != spec:
            raise InternalError(f"two parts require {slot} as {known} and as {spec}")
        return spec
