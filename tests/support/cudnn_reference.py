"""Kernels of cuDNN's provider on the host, where NumPy computes what their plans would.

It shows that a kernel hands the right tensors to cuDNN in the right form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cudnn import PlanLaunch
from cudnn_arithmetic import compute
from executors import open_cpu
from gpu_emulator.device import EmulatedDevice
from launches import aligned, handles_of

from mxrun.base.dtype import numpy_dtype
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.codegen.block_function import BlockFunction
from mxrun.device.host_memory import HostMemory
from mxrun.device.interface import ProgramStep
from mxrun.operator.kernel import Kernel
from mxrun.operator.launch import Handle, LoopLaunch

Array = npt.NDArray[Any]


def run(kernel: Kernel, values: Sequence[Array | None]) -> list[Array | None]:
    """Run a kernel for a card on the host, on values in logical shape; return the outputs.

    Outputs and scratch space hold NaN before.
    """
    inputs = [
        None if spec is None or value is None else stored(value, spec)
        for spec, value in zip(kernel.inputs, values, strict=True)
    ]
    outputs = [None if spec is None else blank(spec) for spec in kernel.outputs]
    workspace = aligned(kernel.workspace_bytes) if kernel.workspace_bytes else None
    if workspace is not None:
        workspace[:] = 0xFF
    for launch in kernel.bind(handles_of(inputs, outputs, workspace=workspace)):
        if isinstance(launch, PlanLaunch):
            places = {role: address(handle) for role, handle in launch.places.items()}
            compute(launch.plan.graph, places)
        elif isinstance(launch, LoopLaunch) and isinstance(launch.function, BlockFunction):
            card = EmulatedDevice(EmulatedDevice.describe(0, 1))
            card.bind([ProgramStep("kernel", (launch,))]).run()
        else:
            open_cpu(1).bind([ProgramStep("kernel", (launch,))]).run()
    return [
        None if spec is None or memory is None else loaded(memory, spec)
        for spec, memory in zip(kernel.outputs, outputs, strict=True)
    ]


def address(handle: Handle) -> int:
    """Return the address of a handle in host memory."""
    assert isinstance(handle.memory, HostMemory)
    return handle.memory.address + handle.offset


def blank(spec: TensorSpec) -> Array:
    """Return memory for a tensor, full of NaN."""
    memory = aligned(spec.nbytes)
    memory[:] = 0xFF
    return memory


def stored(value: Array, spec: TensorSpec) -> Array:
    """Return the bytes of a tensor in its layout and type."""
    memory = blank(spec)
    last = spec.layout == CHANNELS_LAST and value.ndim > 2
    ordered = np.moveaxis(value, 1, -1) if last else value
    elements = np.ascontiguousarray(ordered).astype(numpy_dtype(spec.dtype))
    memory[:] = elements.reshape(-1).view(np.uint8)
    return memory


def loaded(memory: Array, spec: TensorSpec) -> Array:
    """Return the tensor in logical shape, as float64."""
    elements = memory.view(numpy_dtype(spec.dtype)).astype(np.float64)
    if spec.layout == CHANNELS_LAST and len(spec.shape) > 2:
        batch, channels, *space = spec.shape
        return np.moveaxis(elements.reshape(batch, *space, channels), -1, 1)
    return elements.reshape(spec.shape)
