"""Loops that move the pixels of windows: resample, crop, mirror, normalise and write float32.

The filter is a triangle that is as wide as the ratio where an image shrinks. Bytes are resampled as
by Pillow: rows, then columns, with integer weights of 22 bits, and rounded to bytes after each.
"""

from __future__ import annotations

import numpy as np

from mxrun.codegen.arguments import (
    Arguments,
    Float32s,
    Float64s,
    Int32s,
    Int64s,
    Integer,
    Real,
    Uint8s,
)
from mxrun.codegen.jit import inlined, native

# Columns of the table of integers, one row a window. Offsets and steps are in elements.
IMAGE, STEP_CHANNEL, STEP_Y, STEP_X, TARGET, MIRRORED, SCALED = range(7)
AXIS_Y, AXIS_X = 7, 12
# Columns of an axis, from AXIS_Y or AXIS_X on.
LOW, HIGH, SIZE, OFFSET, OUT = range(5)
INTEGERS = 17
# Columns of the table of reals.
START_Y, LENGTH_Y, START_X, LENGTH_X = range(4)
REALS = 4
BITS = 22


class WindowMoves(Arguments):
    """Arguments of the loops: windows `first` .. `first + count` - 1 of the tables.

    A value is (pixel * scale - means[channel]) / deviations[channel]. bounds, weights and sums are
    scratch memory for one window.
    """

    first: Integer
    count: Integer
    channels: Integer
    scale: Real
    integers: Int64s
    reals: Float64s
    image: Uint8s
    means: Float32s
    deviations: Float32s
    target: Float32s
    bounds: Int64s
    weights: Float64s
    sums: Int32s


class ByteMoves(WindowMoves):
    """Arguments of `byte_windows_loop`, with scratch memory for weights and for rows."""

    factors: Int32s
    rows: Uint8s


class FloatMoves(WindowMoves):
    """Arguments of `float_windows_loop`, of float32 images with sums of float64."""

    image: Float32s
    sums: Float64s


@inlined
def axis_weights(call: WindowMoves, axis: int, real: int, bound: int, weight: int) -> int:
    """Compute the filter of the canvas pixels of one axis; return the taps of a pixel.

    bounds[bound + 2 i] is the first source pixel of result i, from `low` on, and the next entry the
    number of pixels; its weights begin at weights[weight + i * taps]. Results outside of the canvas
    have no pixels.
    """
    low, high = call.integers[axis + LOW], call.integers[axis + HIGH]
    size, offset, out = (
        call.integers[axis + SIZE],
        call.integers[axis + OFFSET],
        call.integers[axis + OUT],
    )
    start, ratio = call.reals[real] - low, call.reals[real + 1] / max(size, 1)
    support = max(ratio, 1.0)
    taps = 2 * np.int64(support) + 3
    narrow = 1.0 / support
    for i in range(out):
        count = 0
        first = 0
        if 0 <= offset + i < size:
            center = start + (offset + i + 0.5) * ratio
            first = max(np.int64(center - support + 0.5), 0)
            count = min(np.int64(center + support + 0.5), high - low) - first
            total = 0.0
            for k in range(count):
                distance = abs((k + first - center + 0.5) * narrow)
                part = 1.0 - distance if distance < 1.0 else 0.0
                call.weights[weight + i * taps + k] = part
                total += part
            for k in range(count):
                call.weights[weight + i * taps + k] = call.weights[weight + i * taps + k] / total
        call.bounds[bound + 2 * i] = first
        call.bounds[bound + 2 * i + 1] = count
    return int(taps)


@inlined
def fill(call: WindowMoves, at: int, count: int, channel: int) -> None:
    """Write `count` values of zero pixels."""
    value = (np.float32(0.0) - call.means[channel]) / call.deviations[channel]
    for i in range(count):
        call.target[at + i] = value


@inlined
def copy_window(call: WindowMoves, window: int, real: int) -> None:
    """Write a window that is not resampled."""
    image, target = call.integers[window + IMAGE], call.integers[window + TARGET]
    step = call.integers[window + STEP_X]
    height, width = call.integers[window + AXIS_Y + OUT], call.integers[window + AXIS_X + OUT]
    top, left = call.integers[window + AXIS_Y + OFFSET], call.integers[window + AXIS_X + OFFSET]
    size_y, size_x = call.integers[window + AXIS_Y + SIZE], call.integers[window + AXIS_X + SIZE]
    first_y, first_x = np.int64(call.reals[real + START_Y]), np.int64(call.reals[real + START_X])
    # Results begin .. end - 1 of a row are pixels of the canvas.
    begin = min(max(-left, 0), width)
    end = max(min(size_x - left, width), begin)
    mirrored = call.integers[window + MIRRORED]
    for channel in range(call.channels):
        mean, deviation = call.means[channel], call.deviations[channel]
        for i in range(height):
            row = target + (channel * height + i) * width
            if not 0 <= top + i < size_y:
                fill(call, row, width, channel)
                continue
            source = image + channel * call.integers[window + STEP_CHANNEL]
            source += (first_y + top + i) * call.integers[window + STEP_Y]
            source += (first_x + left) * step
            if mirrored:
                fill(call, row, width - end, channel)
                fill(call, row + width - begin, begin, channel)
                last = row + width - 1
                if step == 1:
                    for j in range(begin, end):
                        pixel = np.float32(call.image[source + j]) * call.scale
                        call.target[last - j] = (pixel - mean) / deviation
                else:
                    for j in range(begin, end):
                        pixel = np.float32(call.image[source + j * step]) * call.scale
                        call.target[last - j] = (pixel - mean) / deviation
            else:
                fill(call, row, begin, channel)
                fill(call, row + end, width - end, channel)
                if step == 1:
                    for j in range(begin, end):
                        pixel = np.float32(call.image[source + j]) * call.scale
                        call.target[row + j] = (pixel - mean) / deviation
                else:
                    for j in range(begin, end):
                        pixel = np.float32(call.image[source + j * step]) * call.scale
                        call.target[row + j] = (pixel - mean) / deviation


@inlined
def write_row(call: WindowMoves, window: int, at: int, channel: int, begin: int, end: int) -> None:
    """Write a row of resampled pixels, of which only `begin` .. `end` - 1 are on the canvas."""
    width = call.integers[window + AXIS_X + OUT]
    mean, deviation = call.means[channel], call.deviations[channel]
    if call.integers[window + MIRRORED]:
        fill(call, at, width - end, channel)
        fill(call, at + width - begin, begin, channel)
        last = at + width - 1
        for j in range(begin, end):
            pixel = np.float32(call.sums[j]) * call.scale
            call.target[last - j] = (pixel - mean) / deviation
    else:
        fill(call, at, begin, channel)
        fill(call, at + end, width - end, channel)
        for j in range(begin, end):
            pixel = np.float32(call.sums[j]) * call.scale
            call.target[at + j] = (pixel - mean) / deviation


@native
def byte_windows_loop(call: ByteMoves) -> None:
    """Write the windows of bytes."""
    half = 1 << (BITS - 1)
    for number in range(call.first, call.first + call.count):
        window, real = number * INTEGERS, number * REALS
        if call.integers[window + SCALED] == 0:
            copy_window(call, window, real)
            continue
        image, target = call.integers[window + IMAGE], call.integers[window + TARGET]
        step, step_channel = call.integers[window + STEP_X], call.integers[window + STEP_CHANNEL]
        height, width = call.integers[window + AXIS_Y + OUT], call.integers[window + AXIS_X + OUT]
        low, low_x = call.integers[window + AXIS_Y + LOW], call.integers[window + AXIS_X + LOW]
        taps_x = axis_weights(call, window + AXIS_X, real + START_X, 0, 0)
        taps_y = axis_weights(call, window + AXIS_Y, real + START_Y, 2 * width, width * taps_x)
        for i in range(width * taps_x + height * taps_y):
            call.factors[i] = np.int64(0.5 + call.weights[i] * (1 << BITS))
        left, top = call.integers[window + AXIS_X + OFFSET], call.integers[window + AXIS_Y + OFFSET]
        begin = min(max(-left, 0), width)
        end = max(min(call.integers[window + AXIS_X + SIZE] - left, width), begin)
        first_row, last_row = max(-top, 0), height - 1
        last_row = min(call.integers[window + AXIS_Y + SIZE] - top, height) - 1
        if first_row > last_row or begin == end:
            for channel in range(call.channels):
                fill(call, target + channel * height * width, height * width, channel)
            continue
        bound_y, factor_y = 2 * width, width * taps_x
        first = call.bounds[bound_y + 2 * first_row]
        rows = call.bounds[bound_y + 2 * last_row] + call.bounds[bound_y + 2 * last_row + 1] - first
        for row in range(rows):
            source = image + (low + first + row) * call.integers[window + STEP_Y] + low_x * step
            if call.channels == 3:
                for j in range(begin, end):
                    at = source + call.bounds[2 * j] * step
                    red, green, blue = half, half, half
                    for k in range(call.bounds[2 * j + 1]):
                        factor = call.factors[j * taps_x + k]
                        red += call.image[at] * factor
                        green += call.image[at + step_channel] * factor
                        blue += call.image[at + 2 * step_channel] * factor
                        at += step
                    call.rows[row * width + j] = red >> BITS
                    call.rows[(rows + row) * width + j] = green >> BITS
                    call.rows[(2 * rows + row) * width + j] = blue >> BITS
            else:
                for channel in range(call.channels):
                    for j in range(begin, end):
                        at = source + channel * step_channel + call.bounds[2 * j] * step
                        total = half
                        for k in range(call.bounds[2 * j + 1]):
                            total += call.image[at + k * step] * call.factors[j * taps_x + k]
                        call.rows[(channel * rows + row) * width + j] = total >> BITS
        for channel in range(call.channels):
            for i in range(height):
                at = target + (channel * height + i) * width
                if not first_row <= i <= last_row:
                    fill(call, at, width, channel)
                    continue
                for j in range(begin, end):
                    call.sums[j] = half
                begin_row = channel * rows + call.bounds[bound_y + 2 * i] - first
                for k in range(call.bounds[bound_y + 2 * i + 1]):
                    factor = call.factors[factor_y + i * taps_y + k]
                    source = (begin_row + k) * width
                    for j in range(begin, end):
                        call.sums[j] = call.sums[j] + call.rows[source + j] * factor
                for j in range(begin, end):
                    call.sums[j] = call.sums[j] >> BITS
                write_row(call, window, at, channel, begin, end)


@native
def float_windows_loop(call: FloatMoves) -> None:
    """Write the windows of float32 pixels, resampled with sums of float64."""
    for number in range(call.first, call.first + call.count):
        window, real = number * INTEGERS, number * REALS
        if call.integers[window + SCALED] == 0:
            copy_window(call, window, real)
            continue
        image, target = call.integers[window + IMAGE], call.integers[window + TARGET]
        step, step_channel = call.integers[window + STEP_X], call.integers[window + STEP_CHANNEL]
        height, width = call.integers[window + AXIS_Y + OUT], call.integers[window + AXIS_X + OUT]
        low, low_x = call.integers[window + AXIS_Y + LOW], call.integers[window + AXIS_X + LOW]
        taps_x = axis_weights(call, window + AXIS_X, real + START_X, 0, 0)
        bound_y, weight_y = 2 * width, width * taps_x
        taps_y = axis_weights(call, window + AXIS_Y, real + START_Y, bound_y, weight_y)
        for channel in range(call.channels):
            for i in range(height):
                for j in range(width):
                    call.sums[j] = 0.0
                for k in range(call.bounds[bound_y + 2 * i + 1]):
                    row = low + call.bounds[bound_y + 2 * i] + k
                    source = image + channel * step_channel
                    source += row * call.integers[window + STEP_Y] + low_x * step
                    weight = call.weights[weight_y + i * taps_y + k]
                    for j in range(width):
                        total = 0.0
                        at = source + call.bounds[2 * j] * step
                        for tap in range(call.bounds[2 * j + 1]):
                            total += call.image[at + tap * step] * call.weights[j * taps_x + tap]
                        call.sums[j] = call.sums[j] + np.float32(total) * weight
                at = target + (channel * height + i) * width
                write_row(call, window, at, channel, 0, width)
