"""Parts of backward kernels, added one by one for the requested gradients."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.errors import InternalError
from mxrun.base.tensor import Layout, TensorSpec
from mxrun.operator.kernel import BackwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, Slot, native_kernel, source, target


class GradientParts:
    """Parts of a backward kernel, added one by one for the requested gradients.

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

    def kernel(self, backend: str, flops: int) -> Kernel:
        """Return the kernel of all parts in the order in which they were added."""
        return native_kernel(
            f"{backend}:{'+'.join(self._names)}",
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
