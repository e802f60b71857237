"""Base of the implementations that run forward only, on plain tensors."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.tensor import PLAIN
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import KernelPart, native_kernel
from mxrun.operator.register import AnyProperty, Implementation


class ForwardOnlyImplementation(Implementation):
    """Implementation of operators without gradient, such as the steps of an update."""

    def plain_kernel(
        self, prop: AnyProperty, request: ForwardRequest, parts: Sequence[KernelPart]
    ) -> Kernel:
        """Return the kernel of `parts`, with all tensors in plain layout."""
        return native_kernel(
            self.name,
            parts,
            tuple(spec.with_layout(PLAIN) for spec in request.inputs),
            tuple(spec.with_layout(PLAIN) for spec in request.outputs),
            request.requests,
            request.device,
            flops=prop.flops(
                [spec.shape for spec in request.inputs], [spec.shape for spec in request.outputs]
            ),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: the operator has no gradient."""
        return None
