"""Tensors in any layout ↔ their values in logical shape.

Only a device's own kernels can read its packings: those of the `_reorder` operator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import item_size
from mxrun.base.errors import InternalError
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec, align
from mxrun.device.interface import Device, ProgramStep
from mxrun.operator.kernel import ForwardRequest, Handles, Kernel, OpReqType
from mxrun.operator.launch import Handle
from mxrun.operator.register import create, implementations

Array = npt.NDArray[Any]

_REORDER = "_reorder"


def is_row_major(spec: TensorSpec) -> bool:
    """Return whether NumPy can view the tensor in its logical shape."""
    return spec.layout in (PLAIN, CHANNELS_LAST)


def logical_view(elements: Array, spec: TensorSpec) -> Array:
    """Return a view in logical shape of a tensor's elements in the order of memory.

    Row-major layouts only.
    """
    shape = spec.shape
    if spec.layout == CHANNELS_LAST:
        return np.moveaxis(elements.reshape(shape[0], *shape[2:], shape[1]), -1, 1)
    return elements.reshape(shape)


def logical(device: Device, elements: Array, spec: TensorSpec) -> Array:
    """Return a tensor in logical shape, given its elements in the order of memory.

    The result is a view if the layout is row-major.
    """
    if not is_row_major(spec):
        plain = spec.with_layout(PLAIN)
        elements, spec = reordered(device, elements, spec, plain), plain
    return logical_view(elements, spec)


def reordered(device: Device, elements: Array, source: TensorSpec, target: TensorSpec) -> Array:
    """Return a tensor's elements in the order of memory of another layout.

    elements: in the order of the source's. The device converts them; raises InternalError if it
    has no kernel for that.
    """
    kernel = _reorder(device, source, target)
    alignment = device.description.alignment
    begin = align(source.nbytes, alignment)
    end = begin + align(target.nbytes, alignment)
    memory = device.allocate(end + align(kernel.workspace_bytes))
    workspace = Handle(memory, end) if kernel.workspace_bytes else None
    handles = Handles((Handle(memory, 0),), (Handle(memory, begin),), workspace=workspace)
    device.write(Handle(memory, 0), elements)
    device.bind([ProgramStep(_REORDER, kernel.bind(handles))]).run()
    count = target.nbytes // item_size(target.dtype)
    return device.read(Handle(memory, begin), TensorSpec((count,), target.dtype))


def _reorder(device: Device, source: TensorSpec, target: TensorSpec) -> Kernel:
    prop, writing = create(_REORDER, {}), (OpReqType.WRITE,)
    request = ForwardRequest((source,), (target,), writing, False, device.description)
    for implementation in implementations(_REORDER, device.description).values():
        kernel = implementation.prepare_forward(prop, request)
        if kernel is not None:
            return kernel
    raise InternalError(f"no kernel reorders {source} to {target} on {device.description.family}")
