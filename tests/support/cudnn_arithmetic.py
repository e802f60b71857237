"""What plans of cuDNN would compute, by NumPy from the descriptors: sizes, strides and types.

What cuDNN itself computes, only a card shows.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import numpy_dtype
from mxrun.device.cuda.cudnn.graph import (
    ConvolutionDirection,
    ConvolutionOperation,
    GraphTensor,
    MatrixMultiplication,
    OperationGraph,
    Pointwise,
    Role,
)

Array = npt.NDArray[Any]


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
    content = (ctypes.c_uint8 * extent(tensor)).from_address(place)
    elements = np.frombuffer(content, kind)
    steps = tuple(step * kind.itemsize for step in tensor.strides)
    return np.lib.stride_tricks.as_strided(elements, tensor.sizes, steps)


def extent(tensor: GraphTensor) -> int:
    """Return the bytes from a tensor's first element to its last one."""
    last = sum((size - 1) * step for size, step in zip(tensor.sizes, tensor.strides, strict=True))
    return (last + 1) * numpy_dtype(tensor.dtype).itemsize


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
                result[:, kernels] += np.tensordot(tap, seen, (1, 1)).swapaxes(0, 1)
            elif operation.direction is ConvolutionDirection.IMAGES:
                given = np.tensordot(tap, outputs[:, kernels], (0, 1)).swapaxes(0, 1)
                result[(slice(None), channels, *read)] += given
            else:
                axes = (0, *range(2, seen.ndim))
                summed = np.tensordot(outputs[:, kernels], seen, (axes, axes))
                result[(kernels, slice(None), *position)] += summed
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
