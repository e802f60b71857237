"""Convolutions as block kernels, for GPUs without a library: slow and right.

Images are [N, depth, height, width, channels] and windows [N, positions..., outputs] in memory, the
weight is [outputs, channels of a group, kernel...]. A thread computes an element of the result. The
terms of a kernel position, or of a row of positions, are added in float32, then those sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Floats, Integer, Table
from mxrun.codegen.block_function import block_of
from mxrun.codegen.blocks import multiply_add, threads
from mxrun.codegen.intrinsics import current_task, integer
from mxrun.codegen.jit import inlined

THREADS = 256
# Outputs and channels of the weight's elements that a block computes.
SIDE = 16


class Direct(Arguments):
    """Arguments of the three products of images, weight and windows.

    channels, outputs: of all groups. axes: for each of three axes the sizes of images, windows and
    kernel, then stride, dilation and padding. bias: what is added to each channel of the result, or
    None. result: where the weight's gradient is written, in float32; the other products write
    images or windows.
    """

    images_count: Integer
    channels: Integer
    outputs: Integer
    groups: Integer
    axes: Table
    images: Floats
    weight: Floats
    windows: Floats
    bias: Float32s
    result: Float32s


class SlidingAxis(NamedTuple):
    """Sizes along an axis."""

    image: Any
    windows: Any
    kernel: Any
    stride: Any
    dilate: Any
    pad: Any


@inlined
def axis(call: Direct, number: int) -> Any:
    """Return the sizes along an axis."""
    at = 6 * number
    return SlidingAxis(
        integer(call.axes, at),
        integer(call.axes, at + 1),
        integer(call.axes, at + 2),
        integer(call.axes, at + 3),
        integer(call.axes, at + 4),
        integer(call.axes, at + 5),
    )


@inlined
def position_of(number: int, depth: int, height: int, width: int) -> Any:
    """Return the image, plane, row and column of a position, by their numbers."""
    row, plane = number // width, number // width // height
    return plane // depth, plane % depth, row % height, number % width


@inlined
def begun(call: Direct, channel: int) -> Any:
    """Return what a channel of the result begins with."""
    total = np.float32(0)
    if call.bias is not None:
        total = call.bias[channel]
    return total


@inlined
def kernel_size(call: Direct) -> Any:
    """Return the number of the kernel's positions."""
    return axis(call, 0).kernel * axis(call, 1).kernel * axis(call, 2).kernel


@block_of(THREADS)
def windows_block(call: Direct) -> None:
    """windows = the convolution of images with weight, + bias."""
    task, _ = current_task()
    d, h, w = axis(call, 0), axis(call, 1), axis(call, 2)
    channels, outputs = call.channels // call.groups, call.outputs // call.groups
    size, positions = kernel_size(call), call.images_count * d.windows * h.windows * w.windows
    for t in threads(THREADS):
        element = task * THREADS + t
        if element < positions * call.outputs:
            o, position = element % call.outputs, element // call.outputs
            n, z, y, x = position_of(position, d.windows, h.windows, w.windows)
            total = begun(call, o)
            for k in range(size):
                iz = z * d.stride - d.pad + k // (h.kernel * w.kernel) * d.dilate
                iy = y * h.stride - h.pad + k // w.kernel % h.kernel * h.dilate
                ix = x * w.stride - w.pad + k % w.kernel * w.dilate
                if 0 <= iz < d.image and 0 <= iy < h.image and 0 <= ix < w.image:
                    at = (((n * d.image + iz) * h.image + iy) * w.image + ix) * call.channels
                    at += o // outputs * channels
                    to, part = o * channels * size + k, np.float32(0)
                    for c in range(channels):
                        part = multiply_add(call.images[at + c], call.weight[to + c * size], part)
                    total += part
            call.windows[element] = total


@inlined
def window_of(place: int, k: int, along: Any) -> int:
    """Return the window that reads a place at position k of the kernel; -1 if there is none."""
    offset = place + along.pad - k * along.dilate
    found = offset // along.stride
    return found if offset % along.stride == 0 and 0 <= found < along.windows else -1


@block_of(THREADS)
def images_block(call: Direct) -> None:
    """images = the transposed convolution of windows with weight, + bias."""
    task, _ = current_task()
    d, h, w = axis(call, 0), axis(call, 1), axis(call, 2)
    channels, outputs = call.channels // call.groups, call.outputs // call.groups
    size, places = kernel_size(call), call.images_count * d.image * h.image * w.image
    for t in threads(THREADS):
        element = task * THREADS + t
        if element < places * call.channels:
            c, place = element % call.channels, element // call.channels
            n, iz, iy, ix = position_of(place, d.image, h.image, w.image)
            total, group = begun(call, c), c // channels
            for k in range(size):
                z = window_of(iz, k // (h.kernel * w.kernel), d)
                y = window_of(iy, k // w.kernel % h.kernel, h)
                x = window_of(ix, k % w.kernel, w)
                if z >= 0 and y >= 0 and x >= 0:
                    at = (((n * d.windows + z) * h.windows + y) * w.windows + x) * call.outputs
                    to = (group * outputs * channels + c % channels) * size + k
                    part = np.float32(0)
                    for o in range(outputs):
                        value = call.windows[at + group * outputs + o]
                        part = multiply_add(value, call.weight[to + o * channels * size], part)
                    total += part
            call.images[element] = total


@block_of(THREADS)
def weight_block(call: Direct) -> None:
    """result = the gradient of the weight: images times windows, at each position of the kernel."""
    task, _ = current_task()
    d, h, w = axis(call, 0), axis(call, 1), axis(call, 2)
    channels, outputs = call.channels // call.groups, call.outputs // call.groups
    size, across = kernel_size(call), (channels + SIDE - 1) // SIDE
    k, tile = task % size, task // size
    down = (outputs + SIDE - 1) // SIDE
    group, first_o, first_c = tile // across // down, tile // across % down, tile % across
    kz, ky, kx = k // (h.kernel * w.kernel), k // w.kernel % h.kernel, k % w.kernel
    for t in threads(THREADS):
        o, c = first_o * SIDE + t // SIDE, first_c * SIDE + t % SIDE
        if o < outputs and c < channels:
            total = 0.0
            for plane in range(call.images_count * d.windows):
                iz = plane % d.windows * d.stride - d.pad + kz * d.dilate
                for y in range(h.windows):
                    iy = y * h.stride - h.pad + ky * h.dilate
                    if 0 <= iz < d.image and 0 <= iy < h.image:
                        image = ((plane // d.windows * d.image + iz) * h.image + iy) * w.image
                        row, part = (plane * h.windows + y) * w.windows, np.float32(0)
                        for x in range(w.windows):
                            ix = x * w.stride - w.pad + kx * w.dilate
                            if 0 <= ix < w.image:
                                at = (image + ix) * call.channels + group * channels + c
                                to = (row + x) * call.outputs + group * outputs + o
                                part = multiply_add(call.images[at], call.windows[to], part)
                        total += part
            call.result[((group * outputs + o) * channels + c) * size + k] = total
