"""Loops that move the pixels of windows: resample, crop, mirror, normalise and write float32.

The filter is a triangle, as wide as the ratio where an image shrinks. Rows are resampled, then
columns, in float32; results are not rounded to bytes in between. Every row of the source is read
once, into a ring of as many rows as the filter needs.
"""

from __future__ import annotations

import numpy as np

from mxrun.codegen.arguments import (
    Arguments,
    Float32s,
    Float64s,
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


class WindowMoves(Arguments):
    """Arguments of the loops: windows `first` .. `first + count` - 1 of the tables.

    A value is (pixel * scale - means[channel]) / deviations[channel]. The other arrays are scratch
    memory for one window: bounds and weights of the filters, one row of the source, the ring of
    resampled rows, and one row of results.
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
    weights: Float32s
    line: Float32s
    ring: Float32s
    sums: Float32s


class ByteMoves(WindowMoves):
    """Arguments of the loops of images of bytes."""


class FloatMoves(WindowMoves):
    """Arguments of the loops of images of float32."""

    image: Float32s


class StackCopies(Arguments):
    """Arguments of `stack_loop`: records `rows` [count] of bytes, written one after the other.

    size: elements of one channel. A value is (byte * scale - means[channel]) / deviations[channel].
    """

    count: Integer
    channels: Integer
    size: Integer
    scale: Real
    records: Uint8s
    rows: Int64s
    means: Float32s
    deviations: Float32s
    target: Float32s


@inlined
def axis_weights(call: WindowMoves, axis: int, real: int, bound: int, weight: int) -> int:
    """Compute the filter of the canvas pixels of one axis; return the taps of each.

    Result i is the sum of the source pixels from low + bounds[bound + i] on, with the weights from
    weights[weight + i * taps] on. Weights of results outside of the canvas are zero.
    """
    low, span = call.integers[axis + LOW], call.integers[axis + HIGH] - call.integers[axis + LOW]
    size, offset = call.integers[axis + SIZE], call.integers[axis + OFFSET]
    start, ratio = call.reals[real] - low, call.reals[real + 1] / max(size, 1)
    support = max(ratio, 1.0)
    taps = min(np.int64(2.0 * support) + 1, span)
    narrow = 1.0 / support
    for i in range(call.integers[axis + OUT]):
        at = weight + i * taps
        for k in range(taps):
            call.weights[at + k] = 0.0
        call.bounds[bound + i] = 0
        if not 0 <= offset + i < size:
            continue
        center = start + (offset + i + 0.5) * ratio
        first = max(np.int64(center - support + 0.5), 0)
        count = min(min(np.int64(center + support + 0.5), span) - first, taps)
        total = 0.0
        for k in range(count):
            distance = abs((k + first - center + 0.5) * narrow)
            total += 1.0 - distance if distance < 1.0 else 0.0
        # All results have as many taps, so that branches are predicted.
        begin = min(first, span - taps)
        call.bounds[bound + i] = begin
        for k in range(count):
            distance = abs((k + first - center + 0.5) * narrow)
            part = 1.0 - distance if distance < 1.0 else 0.0
            call.weights[at + first - begin + k] = part / total
    return int(taps)


@inlined
def fill(call: WindowMoves, at: int, count: int, channel: int) -> None:
    """Write `count` values of zero pixels."""
    value = (np.float32(0.0) - call.means[channel]) / call.deviations[channel]
    for i in range(count):
        call.target[at + i] = value


@inlined
def copy_row(call: WindowMoves, source: int, step: int, at: int, count: int, forward: int) -> None:
    """Write `count` pixels, `step` apart, from `source` on to `at`, forward or back (1 or -1)."""
    if step == 1 and forward == 1:
        for j in range(count):
            call.target[at + j] = call.image[source + j]
    elif step == 1:
        for j in range(count):
            call.target[at - j] = call.image[source + j]
    else:
        for j in range(count):
            call.target[at + forward * j] = call.image[source + step * j]


@inlined
def copy_window(call: WindowMoves, window: int, real: int) -> None:
    """Write a window that is not resampled."""
    step = call.integers[window + STEP_X]
    height, width = call.integers[window + AXIS_Y + OUT], call.integers[window + AXIS_X + OUT]
    top, left = call.integers[window + AXIS_Y + OFFSET], call.integers[window + AXIS_X + OFFSET]
    first_y, first_x = np.int64(call.reals[real + START_Y]), np.int64(call.reals[real + START_X])
    # Results begin .. end - 1 of a row are pixels of the canvas.
    begin = min(max(-left, 0), width)
    end = max(min(call.integers[window + AXIS_X + SIZE] - left, width), begin)
    for channel in range(call.channels):
        mean, deviation = call.means[channel], call.deviations[channel]
        for i in range(height):
            row = call.integers[window + TARGET] + (channel * height + i) * width
            if not 0 <= top + i < call.integers[window + AXIS_Y + SIZE]:
                fill(call, row, width, channel)
                continue
            source = call.integers[window + IMAGE]
            source += channel * call.integers[window + STEP_CHANNEL]
            source += (first_y + top + i) * call.integers[window + STEP_Y]
            source += (first_x + left + begin) * step
            first, last = row + begin, row + end
            if call.integers[window + MIRRORED]:
                first, last = row + width - end, row + width - begin
                copy_row(call, source, step, last - 1, end - begin, -1)
            else:
                copy_row(call, source, step, first, end - begin, 1)
            fill(call, row, first - row, channel)
            fill(call, last, row + width - last, channel)
            # Apart from the copy, which has no vectors of pixels that are apart.
            for j in range(first, last):
                call.target[j] = (call.target[j] * call.scale - mean) / deviation


@inlined
def read_line(call: WindowMoves, window: int, row: int) -> None:
    """Read a row of the source: line[x * channels + channel], from column `low` on."""
    low, high = call.integers[window + AXIS_X + LOW], call.integers[window + AXIS_X + HIGH]
    step, step_channel = call.integers[window + STEP_X], call.integers[window + STEP_CHANNEL]
    source = call.integers[window + IMAGE] + row * call.integers[window + STEP_Y] + low * step
    if step == call.channels and step_channel == 1:
        for x in range((high - low) * step):
            call.line[x] = call.image[source + x]
    else:
        for channel in range(call.channels):
            for x in range(high - low):
                pixel = call.image[source + channel * step_channel + x * step]
                call.line[x * call.channels + channel] = pixel


@inlined
def filter_line(call: WindowMoves, at: int, begin: int, end: int, taps: int, lanes: int) -> None:
    """Resample the row that was read: ring[at + x * lanes + channel], x in begin .. end - 1."""
    if call.channels == 3:
        for x in range(begin, end):
            source, weight = 3 * call.bounds[x], x * taps
            factor = call.weights[weight]
            red, green = call.line[source] * factor, call.line[source + 1] * factor
            blue, rest = call.line[source + 2] * factor, call.line[source + 3] * factor
            for k in range(1, taps):
                source += 3
                factor = call.weights[weight + k]
                red += call.line[source] * factor
                green += call.line[source + 1] * factor
                blue += call.line[source + 2] * factor
                # Of the next pixel: four lanes are a vector.
                rest += call.line[source + 3] * factor
            call.ring[at + 4 * x] = red
            call.ring[at + 4 * x + 1] = green
            call.ring[at + 4 * x + 2] = blue
            call.ring[at + 4 * x + 3] = rest
    else:
        for x in range(begin, end):
            for channel in range(lanes):
                source, total = call.bounds[x] * lanes + channel, np.float32(0.0)
                for k in range(taps):
                    total += call.line[source + k * lanes] * call.weights[x * taps + k]
                call.ring[at + x * lanes + channel] = total


@inlined
def write_row(call: WindowMoves, window: int, row: int, begin: int, end: int, lanes: int) -> None:
    """Write a row of results, of which only begin .. end - 1 are on the canvas."""
    height, width = call.integers[window + AXIS_Y + OUT], call.integers[window + AXIS_X + OUT]
    for channel in range(call.channels):
        mean, deviation = call.means[channel], call.deviations[channel]
        at = call.integers[window + TARGET] + (channel * height + row) * width
        first, last = at + begin, at + end
        if call.integers[window + MIRRORED]:
            first, last = at + width - end, at + width - begin
            for x in range(begin, end):
                call.target[at + width - 1 - x] = call.sums[x * lanes + channel]
        else:
            for x in range(begin, end):
                call.target[at + x] = call.sums[x * lanes + channel]
        fill(call, at, first - at, channel)
        fill(call, last, at + width - last, channel)
        # Apart from the copy, which has no vectors of pixels that are apart.
        for j in range(first, last):
            call.target[j] = (call.target[j] * call.scale - mean) / deviation


@inlined
def resample_window(call: WindowMoves, window: int, real: int) -> None:
    """Write a window that is resampled."""
    height, width = call.integers[window + AXIS_Y + OUT], call.integers[window + AXIS_X + OUT]
    # Three channels are padded to four, which is a vector.
    lanes = 4 if call.channels == 3 else call.channels
    pitch = width * lanes
    taps_x = axis_weights(call, window + AXIS_X, real + START_X, 0, 0)
    taps_y = axis_weights(call, window + AXIS_Y, real + START_Y, width, width * taps_x)
    left, top = call.integers[window + AXIS_X + OFFSET], call.integers[window + AXIS_Y + OFFSET]
    begin = min(max(-left, 0), width)
    end = max(min(call.integers[window + AXIS_X + SIZE] - left, width), begin)
    done = 0
    for i in range(height):
        if not 0 <= top + i < call.integers[window + AXIS_Y + SIZE]:
            for channel in range(call.channels):
                at = call.integers[window + TARGET] + (channel * height + i) * width
                fill(call, at, width, channel)
            continue
        first, weight = call.bounds[width + i], width * taps_x + i * taps_y
        for row in range(max(done, first), first + taps_y):
            read_line(call, window, call.integers[window + AXIS_Y + LOW] + row)
            filter_line(call, row % taps_y * pitch, begin, end, taps_x, lanes)
        done = max(done, first + taps_y)
        at, factor = first % taps_y * pitch, call.weights[weight]
        for x in range(begin * lanes, end * lanes):
            call.sums[x] = call.ring[at + x] * factor
        for k in range(1, taps_y):
            at, factor = (first + k) % taps_y * pitch, call.weights[weight + k]
            for x in range(begin * lanes, end * lanes):
                call.sums[x] = call.sums[x] + call.ring[at + x] * factor
        write_row(call, window, i, begin, end, lanes)


@inlined
def copy_windows(call: WindowMoves) -> None:
    """Write the windows that are not resampled."""
    for number in range(call.first, call.first + call.count):
        if call.integers[number * INTEGERS + SCALED] == 0:
            copy_window(call, number * INTEGERS, number * REALS)


@inlined
def resample_windows(call: WindowMoves) -> None:
    """Write the windows that are resampled."""
    for number in range(call.first, call.first + call.count):
        if call.integers[number * INTEGERS + SCALED]:
            resample_window(call, number * INTEGERS, number * REALS)


@native
def byte_copy_loop(call: ByteMoves) -> None:
    """Write the windows of images of bytes that are not resampled."""
    copy_windows(call)


@native
def byte_resample_loop(call: ByteMoves) -> None:
    """Write the windows of images of bytes that are resampled."""
    resample_windows(call)


@native
def float_copy_loop(call: FloatMoves) -> None:
    """Write the windows of images of float32 that are not resampled."""
    copy_windows(call)


@native
def float_resample_loop(call: FloatMoves) -> None:
    """Write the windows of images of float32 that are resampled."""
    resample_windows(call)


@native
def stack_loop(call: StackCopies) -> None:
    """Write records of bytes as they are, but scaled and normalised."""
    for i in range(call.count):
        for channel in range(call.channels):
            mean, deviation = call.means[channel], call.deviations[channel]
            source = (call.rows[i] * call.channels + channel) * call.size
            target = (i * call.channels + channel) * call.size
            for j in range(call.size):
                value = np.float32(call.records[source + j]) * call.scale
                call.target[target + j] = (value - mean) / deviation
