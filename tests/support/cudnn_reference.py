"""What plans of cuDNN would compute, by NumPy from the descriptors: sizes, strides and types.

It shows that a kernel hands the right tensors to cuDNN in the right form. What cuDNN itself
computes, only a card shows.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cudnn import PlanLaunch
from executors import open_cpu
from gpu_emulator.device import EmulatedDevice
from launches import aligned, handles_of

from mxrun.base.dtype import numpy_dtype
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.codegen.block_function import BlockFunction
from mxrun.device.cuda.cudnn.graph import (
    ConvolutionDirection,
    ConvolutionOperation,
    GraphTensor,
    MatrixMultiplication,
    OperationGraph,
    Pointwise,
    Role,
)
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


def compute(graph: OperationGraph, places: Mapping[Role, int]) -> None:
    """Compute a graph's operations on tensors at addresses."""
    arrays: dict[Role, Array] = {}
    for role, tensor in graph.tensors.items():
        if tensor.is_virtual:
            arrays[role] = np.zeros(tensor.sizes)
        else:
            arrays[role] = viewed(tensor, places[role])
    for operation in graph.operations:
        factors = [arrays[each.role] for each in operation.tensors]
        if isinstance(operation, ConvolutionOperation):
            convolve(operation, *factors)
        elif isinstance(operation, MatrixMultiplication):
            left, right, output = factors
            output[...] = np.matmul(wide(left), wide(right)).astype(output.dtype)
        else:
            assert isinstance(operation, Pointwise)
            *operands, output = factors
            output[...] = sum(map(wide, operands)).astype(output.dtype)


def viewed(tensor: GraphTensor, place: int) -> Array:
    """Return a tensor's memory as an array."""
    assert place % tensor.alignment == 0
    kind = numpy_dtype(tensor.dtype)
    last = sum((size - 1) * step for size, step in zip(tensor.sizes, tensor.strides, strict=True))
    content = (ctypes.c_uint8 * ((last + 1) * kind.itemsize)).from_address(place)
    elements = np.frombuffer(content, kind)
    steps = tuple(step * kind.itemsize for step in tensor.strides)
    return np.lib.stride_tricks.as_strided(elements, tensor.sizes, steps)


def wide(array: Array) -> Array:
    return array.astype(np.float64)


def convolve(operation: ConvolutionOperation, images: Array, weight: Array, windows: Array) -> None:
    """Compute one of the tensors from the others, position of the kernel by position."""
    groups = images.shape[1] // weight.shape[1]
    edges = [(0, 0), (0, 0), *((pad, pad) for pad in operation.pad)]
    padded = np.pad(wide(images), edges)
    filters, outputs = wide(weight), wide(windows)
    before = outputs if operation.is_added else 0.0
    results = {
        ConvolutionDirection.WINDOWS: np.zeros(windows.shape),
        ConvolutionDirection.IMAGES: np.zeros(padded.shape),
        ConvolutionDirection.WEIGHT: np.zeros(weight.shape),
    }
    result = results[operation.direction]
    of_images, of_windows = (size // groups for size in (images.shape[1], windows.shape[1]))
    for position in itertools.product(*map(range, weight.shape[2:])):
        read = tuple(
            slice(at * gap, at * gap + (count - 1) * step + 1, step)
            for at, gap, step, count in zip(
                position, operation.dilation, operation.stride, windows.shape[2:], strict=True
            )
        )
        for group in range(groups):
            channels = slice(group * of_images, (group + 1) * of_images)
            kernels = slice(group * of_windows, (group + 1) * of_windows)
            tap = filters[(kernels, slice(None), *position)]
            seen = padded[(slice(None), channels, *read)]
            if operation.direction is ConvolutionDirection.WINDOWS:
                result[:, kernels] += np.einsum("nc...,oc->no...", seen, tap)
            elif operation.direction is ConvolutionDirection.IMAGES:
                result[(slice(None), channels, *read)] += np.einsum(
                    "no...,oc->nc...", outputs[:, kernels], tap
                )
            else:
                flat = (*seen.shape[:2], -1)
                result[(kernels, slice(None), *position)] += np.einsum(
                    "nop,ncp->oc",
                    outputs[:, kernels].reshape(len(outputs), of_windows, -1),
                    seen.reshape(flat),
                )
    if operation.direction is ConvolutionDirection.WINDOWS:
        windows[...] = (result + before).astype(windows.dtype)
    elif operation.direction is ConvolutionDirection.IMAGES:
        inside = tuple(
            slice(pad, pad + size)
            for pad, size in zip(operation.pad, images.shape[2:], strict=True)
        )
        images[...] = result[(slice(None), slice(None), *inside)].astype(images.dtype)
    else:
        weight[...] = result.astype(weight.dtype)
