"""Kernel that copies a tensor to another layout or dtype."""

from __future__ import annotations

from mxrun.base.device import DeviceDescription
from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.register import create
from mxrun.passes.candidates import known_implementations

REORDER = "_reorder"


def reorder_kernel(spec: TensorSpec, required: TensorSpec, device: DeviceDescription) -> Kernel:
    """Return the kernel that copies a tensor of `spec` to one of `required`.

    Raises InternalError if the device has none.
    """
    request = ForwardRequest((spec,), (required,), (OpReqType.WRITE,), False, device)
    for candidate in known_implementations(REORDER, device).values():
        kernel = candidate.prepare_forward(create(REORDER, {}), request)
        # A NumPy body knows plain layouts alone.
        if kernel is not None and (kernel.inputs, kernel.outputs) == ((spec,), (required,)):
            return kernel
    raise InternalError(f"nothing reorders {spec} to {required}")
