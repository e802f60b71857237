"""Sums and averages over windows as compiled loops on channels-last memory.

The loops treat every tensor as having three spatial axes; missing ones are leading axes of size 1.
"""

from __future__ import annotations

import numpy as np

from mxrun.base.tensor import Shape
from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.intrinsics import each
from mxrun.codegen.jit import native
from mxrun.codegen.loops import elements_of_task
from mxrun.codegen.vectors import LANES, add_lanes, lanes, load_lanes, store_lanes, wide_lanes
from mxrun.ops.window import Window


class Windows(Arguments):
    """Windows of data [batch, depth, height, width, channels], whose axes are z, y and x.

    Of each axis: windows, their number; kernel, stride and pad as in `Window`.
    """

    batch: Integer
    channels: Integer
    depth: Integer
    height: Integer
    width: Integer
    windows_z: Integer
    windows_y: Integer
    windows_x: Integer
    kernel_z: Integer
    kernel_y: Integer
    kernel_x: Integer
    stride_z: Integer
    stride_y: Integer
    stride_x: Integer
    pad_z: Integer
    pad_y: Integer
    pad_x: Integer


def windows_of(data: Shape, output: Shape, window: Window) -> dict[str, int]:
    """Return the arguments that are the same in all loops over windows."""
    depth, height, width = _three_axes(data[2:], 1)
    return {
        "batch": data[0],
        "channels": data[1],
        "depth": depth,
        "height": height,
        "width": width,
        **_per_axis("windows", output[2:], 1),
        **_per_axis("kernel", window.kernel, 1),
        **_per_axis("stride", window.stride, 1),
        **_per_axis("pad", window.pad, 0),
    }


def _per_axis(name: str, values: Shape, filling: int) -> dict[str, int]:
    """Return the arguments name_z, name_y and name_x, with a filling for missing axes."""
    axes = zip("zyx", _three_axes(values, filling), strict=True)
    return {f"{name}_{axis}": value for axis, value in axes}


def _three_axes(values: Shape, filling: int) -> Shape:
    return (filling,) * (3 - len(values)) + values


class AveragedWindows(Windows):
    """Windows whose sums are averages if `is_average`.

    margin: number of positions beyond the data, per axis, that an average still counts.
    """

    margin_z: Integer
    margin_y: Integer
    margin_x: Integer
    is_average: Integer


def averaged_windows_of(
    data: Shape, output: Shape, window: Window, margin: Shape, is_average: bool
) -> dict[str, int]:
    """Return the arguments that are the same in all loops over windows with averages."""
    return {
        **windows_of(data, output, window),
        **_per_axis("margin", margin, 0),
        "is_average": int(is_average),
    }


class WindowSum(AveragedWindows):
    """Arguments of `window_sum_loop`."""

    data: Float32s
    output: Float32s


@native
def window_sum_loop(call: WindowSum) -> None:
    """output[n, y, c] = sum of data[n, x, c] over the x in window y [/ its size]."""
    channels, data, output = call.channels, call.data, call.output
    depth, height, width = call.depth, call.height, call.width
    windows_z, windows_y, windows_x = call.windows_z, call.windows_y, call.windows_x
    margin_z, margin_y, margin_x = call.margin_z, call.margin_y, call.margin_x
    for line in elements_of_task(call.batch * windows_z * windows_y):
        plane = line // windows_y
        image = plane // windows_z * depth
        first_z = plane % windows_z * call.stride_z - call.pad_z
        first_y = line % windows_y * call.stride_y - call.pad_y
        last_z, last_y = first_z + call.kernel_z, first_y + call.kernel_y
        # A window beyond the end (possible with `full`) is empty, and its sum is zero.
        area = max(min(last_z, depth + margin_z) - max(first_z, -margin_z), 1)
        area *= max(min(last_y, height + margin_y) - max(first_y, -margin_y), 1)
        for window in range(windows_x):
            first_x = window * call.stride_x - call.pad_x
            last_x = first_x + call.kernel_x
            to = (line * windows_x + window) * channels
            for c in range(0, channels, LANES):
                count, total = channels - c, wide_lanes(lanes(0.0))
                for z in range(max(first_z, 0), min(last_z, depth)):
                    for y in range(max(first_y, 0), min(last_y, height)):
                        row = ((image + z) * height + y) * width
                        for x in range(max(first_x, 0), min(last_x, width)):
                            value = load_lanes(data, (row + x) * channels + c, count)
                            total = add_lanes(total, value)
                store_lanes(output, to + c, total, count)
            if call.is_average:
                size = area * max(min(last_x, width + margin_x) - max(first_x, -margin_x), 1)
                for c in range(to, to + channels):
                    output[c] /= np.float32(size)


class WindowSumGradient(AveragedWindows):
    """Arguments of `window_sum_gradient_loop`."""

    out_grad: Float32s
    gradient: Float32s


@native
def window_sum_gradient_loop(call: WindowSumGradient) -> None:
    """gradient[n, x, c] = sum of out_grad[n, y, c] [/ size of y] over the windows y with x."""
    channels, out_grad, gradient = call.channels, call.out_grad, call.gradient
    depth, height, width = call.depth, call.height, call.width
    windows_z, windows_y, windows_x = call.windows_z, call.windows_y, call.windows_x
    kernel_z, stride_z, pad_z = call.kernel_z, call.stride_z, call.pad_z
    kernel_y, stride_y, pad_y = call.kernel_y, call.stride_y, call.pad_y
    margin_z, margin_y, margin_x = call.margin_z, call.margin_y, call.margin_x
    for line in elements_of_task(call.batch * depth * height):
        for c in each(line * width * channels, (line + 1) * width * channels):
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
                    first = window * call.stride_x - call.pad_x
                    last = first + call.kernel_x
                    factor = np.float32(1)
                    if call.is_average:
                        size = area * max(min(last, width + margin_x) - max(first, -margin_x), 1)
                        factor = np.float32(1) / np.float32(size)
                    for x in range(max(first, 0), min(last, width)):
                        to = (line * width + x) * channels
                        for c in each(0, channels):
                            gradient[to + c] += out_grad[(row + window) * channels + c] * factor
