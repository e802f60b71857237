"""Sums and averages over windows as compiled loops on channels-last memory.

The loops treat every tensor as having three spatial axes; missing ones are leading axes of size 1.
Their arguments are `window_arguments`, then the input and the output tensor.
"""

from __future__ import annotations

import numpy as np

from mxrun.backend.jit import Block, float32s, integer, native, share
from mxrun.base.tensor import Shape
from mxrun.ops.window import Window

_AXES = 3


def window_arguments(
    data: Shape, output: Shape, window: Window, margin: Shape, average: bool
) -> tuple[int, ...]:
    """Return batch, channels; per axis size, windows, kernel, stride, pad, margin; average flag.

    margin: number of positions beyond the data that an average still counts.
    """
    spatial = (data[2:], output[2:], window.kernel, window.stride, window.pad, margin)
    fillings = (1, 1, 1, 1, 0, 0)
    axes = [
        (*(filling,) * (_AXES - len(values)), *values)
        for values, filling in zip(spatial, fillings, strict=True)
    ]
    return (*data[:2], *(value for values in axes for value in values), int(average))


@native
def window_sum_loop(block: Block) -> None:
    """output[n, y, c] = sum of data[n, x, c] over the x in window y [/ its size]."""
    channels = integer(block, 1)
    depth, height, width = integer(block, 2), integer(block, 3), integer(block, 4)
    windows_z, windows_y, windows_x = integer(block, 5), integer(block, 6), integer(block, 7)
    margin_z, margin_y, margin_x = integer(block, 17), integer(block, 18), integer(block, 19)
    data, output = float32s(block, 21), float32s(block, 22)
    begin, end = share(block, integer(block, 0) * windows_z * windows_y)
    for line in range(begin, end):
        plane = line // windows_y
        image = plane // windows_z * depth
        first_z = plane % windows_z * integer(block, 11) - integer(block, 14)
        first_y = line % windows_y * integer(block, 12) - integer(block, 15)
        last_z, last_y = first_z + integer(block, 8), first_y + integer(block, 9)
        # A window beyond the end (possible with `full`) is empty, and its sum is zero.
        area = max(min(last_z, depth + margin_z) - max(first_z, -margin_z), 1)
        area *= max(min(last_y, height + margin_y) - max(first_y, -margin_y), 1)
        for window in range(windows_x):
            first_x = window * integer(block, 13) - integer(block, 16)
            last_x = first_x + integer(block, 10)
            to = (line * windows_x + window) * channels
            for c in range(to, to + channels):
                output[c] = 0
            for z in range(max(first_z, 0), min(last_z, depth)):
                for y in range(max(first_y, 0), min(last_y, height)):
                    row = ((image + z) * height + y) * width
                    for x in range(max(first_x, 0), min(last_x, width)):
                        for c in range(channels):
                            output[to + c] += data[(row + x) * channels + c]
            if integer(block, 20) != 0:
                size = area * max(min(last_x, width + margin_x) - max(first_x, -margin_x), 1)
                for c in range(to, to + channels):
                    output[c] /= np.float32(size)


@native
def window_sum_gradient_loop(block: Block) -> None:
    """gradient[n, x, c] = sum of out_grad[n, y, c] [/ size of y] over the windows y with x."""
    channels = integer(block, 1)
    depth, height, width = integer(block, 2), integer(block, 3), integer(block, 4)
    windows_z, windows_y, windows_x = integer(block, 5), integer(block, 6), integer(block, 7)
    kernel_z, stride_z, pad_z = integer(block, 8), integer(block, 11), integer(block, 14)
    kernel_y, stride_y, pad_y = integer(block, 9), integer(block, 12), integer(block, 15)
    margin_z, margin_y, margin_x = integer(block, 17), integer(block, 18), integer(block, 19)
    out_grad, gradient = float32s(block, 21), float32s(block, 22)
    begin, end = share(block, integer(block, 0) * depth * height)
    for line in range(begin, end):
        for c in range(line * width * channels, (line + 1) * width * channels):
            gradient[c] = 0
        # Positions relative to the start of the first window: window i begins at i * stride.
        plane = line // height
        z, y, image = plane % depth + pad_z, line % height + pad_y, plane // depth * windows_z
        for i in range(max((z - kernel_z) // stride_z + 1, 0), min(z // stride_z + 1, windows_z)):
            start = i * stride_z - pad_z
            size_z = min(start + kernel_z, depth + margin_z) - max(start, -margin_z)
            for j in range(
                max((y - kernel_y) // stride_y + 1, 0), min(y // stride_y + 1, windows_y)
            ):
                start = j * stride_y - pad_y
                area = size_z * (min(start + kernel_y, height + margin_y) - max(start, -margin_y))
                row = ((image + i) * windows_y + j) * windows_x
                for window in range(windows_x):
                    first = window * integer(block, 13) - integer(block, 16)
                    last = first + integer(block, 10)
                    factor = np.float32(1)
                    if integer(block, 20) != 0:
                        size = area * max(min(last, width + margin_x) - max(first, -margin_x), 1)
                        factor = np.float32(1) / np.float32(size)
                    for x in range(max(first, 0), min(last, width)):
                        to = (line * width + x) * channels
                        for c in range(channels):
                            gradient[to + c] += out_grad[(row + window) * channels + c] * factor
