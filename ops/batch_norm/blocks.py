"""Batch normalisation's loops as block kernels for GPUs, with the bits of the CPU's.

A block has a piece of the tensor (`Pieces`), or so many channels as it has threads. A thread has
columns of the piece, whose running sums are in its registers; at the end the columns of a channel
are added in shared memory, in the order of the CPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.block_function import block_of
from mxrun.codegen.blocks import shared, stored, threads
from mxrun.codegen.intrinsics import current_task, float32s
from mxrun.codegen.jit import inlined
from mxrun.ops.batch_norm.channels import (
    ChannelSums,
    GradientScaling,
    Scaling,
    scale_channel,
    scale_gradients,
)
from mxrun.ops.batch_norm.loops import (
    CLIPPED,
    READ,
    RECTIFIED,
    SAMPLE_STEP,
    DataGradient,
    GradientSums,
    Normalization,
    PassingGradient,
    Sampling,
    Statistics,
)
from mxrun.ops.batch_norm.pieces import MAX_COLUMNS
from mxrun.ops.batch_norm.walk import Walk, piece_at, place

THREADS = 256


@block_of(THREADS)
def shift_block(call: Sampling) -> None:
    """shift[c] = mean of a few scattered elements of channel c."""
    task, _ = current_task()
    for t in threads(THREADS):
        c = task * THREADS + t
        if c < call.channels:
            total = np.float32(0)
            for number in range(call.samples):
                position = number * SAMPLE_STEP % call.count
                at = position // call.inner * call.data_pitch + position % call.inner
                total += call.data[at + c * call.inner]
            call.shift[c] = total / np.float32(call.samples)


@inlined
def value_of(call: Walk, array: int, first: int, j: int) -> Any:
    """Return the value of an array [C] for column j of a piece that begins at channel `first`."""
    return float32s(call.sources, array)[first + j % call.unit]


@inlined
def store_sums(
    call: Walk, left: Any, right: Any, columns: int, first: int, sums: Any, to: int
) -> None:
    """Write the sums of each channel: of its columns, which are added pairwise."""
    unit, at = call.unit, to + first
    groups = columns // unit
    while groups > 1:
        half = (groups + 1) // 2
        for t in threads(THREADS):
            for j in range(t, (groups - half) * unit, THREADS):
                left[j] += left[j + half * unit]
                right[j] += right[j + half * unit]
        groups = half
    for t in threads(THREADS):
        for c in range(t, min(unit, columns), THREADS):
            sums[at + c] = left[c]
            sums[at + call.channels + c] = right[c]


@inlined
def sum_piece(call: Walk, sums: Any, terms: Any) -> None:
    """Write the sums of a piece's terms(distance, a, first, j), and of their products with it.

    distance: of element a, in column j, from what the first array has for the column.
    """
    left, right = shared(MAX_COLUMNS), shared(MAX_COLUMNS)
    task, _ = current_task()
    at, rows, columns, first, to = piece_at(call, task)
    for t in threads(THREADS):
        for j in range(t, columns, THREADS):
            center = value_of(call, 0, first, j)
            total, products = np.float32(0), np.float32(0)
            for row in range(rows):
                a = at + row * call.stride + j
                distance = call.data[place(a, call.channels, call.data_pitch)] - center
                value = terms(distance, a, first, j)
                total += value
                products += value * distance
            left[j] = total
            right[j] = products
    store_sums(call, left, right, columns, first, sums, to)


@block_of(THREADS)
def statistics_block(call: Statistics) -> None:
    """sums[k, 0, c] and sums[k, 1, c] = a piece's sums of data - shift and of its square."""
    sum_piece(call, call.sums, lambda distance, a, first, j: distance)


@inlined
def is_positive(value: Any) -> Any:
    """Return whether a number is above 0, or NaN."""
    return value > np.float32(0) or math.isnan(value)


@inlined
def limited(call: Normalization, value: Any) -> Any:
    """Apply the rectifier or clip; NaN stays NaN."""
    found = value
    if call.limits == RECTIFIED:
        found = value if is_positive(value) else np.float32(0)
    if call.limits == CLIPPED:
        found = call.floor if value < call.low else value
        found = call.ceiling if value > call.high else found
    return found


@block_of(THREADS)
def normalize_block(call: Normalization) -> None:
    """output = (data - mean) * scale + beta, then + residual, then limited, as requested."""
    task, _ = current_task()
    at, rows, columns, first, _ = piece_at(call, task)
    for t in threads(THREADS):
        for j in range(t, columns, THREADS):
            mean, scale = value_of(call, 0, first, j), value_of(call, 1, first, j)
            beta = value_of(call, 2, first, j)
            for row in range(rows):
                a = at + row * call.stride + j
                distance = call.data[place(a, call.channels, call.data_pitch)] - mean
                value = distance * scale + beta
                if call.residual is not None:
                    value = stored(call.output, value) + call.residual[a]
                to = place(a, call.channels, call.output_pitch)
                call.output[to] = limited(call, value)


@inlined
def passing(low: Any, high: Any, value: Any, by: Any, clips: bool) -> Any:
    """Return the gradient that passes the limits, see `loops.passing`."""
    found = np.float32(0)
    if clips:
        if not (by > high or low > by):
            found = value
    elif by > low:
        found = value
    else:
        found = value * (by if math.isnan(by) else np.float32(0))
    return found


@inlined
def gradient_at(call: PassingGradient, distance: Any, a: int, first: int, j: int) -> Any:
    """Return the gradient that passes the limits, if there are any, of element `a`."""
    value = call.grad[a]
    if call.limits == RECTIFIED or call.limits == CLIPPED:
        by = distance * value_of(call, 1, first, j) + value_of(call, 2, first, j)
        value = passing(call.low, call.high, value, by, call.limits == CLIPPED)
    if call.limits == READ:
        value = passing(call.low, call.high, value, call.output[a], False)
    return value


@inlined
def passed_gradient(call: GradientSums, distance: Any, a: int, first: int, j: int) -> Any:
    """Return `gradient_at`, which is also stored, if that is requested."""
    value = gradient_at(call, distance, a, first, j)
    if call.passed is not None:
        call.passed[a] = value
    return value


@block_of(THREADS)
def gradient_sums_block(call: GradientSums) -> None:
    """sums[k, 0, c] and sums[k, 1, c] = a piece's sums of grad and of grad * (data - mean)."""
    sum_piece(
        call,
        call.sums,
        lambda distance, a, first, j: passed_gradient(call, distance, a, first, j),
    )


@block_of(THREADS)
def data_gradient_block(call: DataGradient) -> None:
    """data_grad = (grad - center - (data - mean) * slope) * scale, or added to data_grad."""
    task, _ = current_task()
    at, rows, columns, first, _ = piece_at(call, task)
    for t in threads(THREADS):
        for j in range(t, columns, THREADS):
            mean, scale = value_of(call, 0, first, j), value_of(call, 3, first, j)
            center, slope = value_of(call, 4, first, j), value_of(call, 5, first, j)
            for row in range(rows):
                a = at + row * call.stride + j
                distance = call.data[place(a, call.channels, call.data_pitch)] - mean
                value = gradient_at(call, distance, a, first, j) - center
                value = (value - distance * slope) * scale
                if call.is_added:
                    value = call.data_grad[a] + stored(call.data_grad, value)
                call.data_grad[a] = value


@inlined
def total_of(call: ChannelSums, c: int) -> Any:
    """Return the float64 total of the partial sums from element c of each on."""
    total = 0.0
    for k in range(call.partial_sums):
        total += call.sums[2 * k * call.channels + c]
    return total


@inlined
def each_channel(call: ChannelSums, write: Any) -> None:
    """Call write(c, first total, second total) for the channels of the block, in its threads."""
    task, _ = current_task()
    for t in threads(THREADS):
        c = task * THREADS + t
        if c < call.channels:
            write(c, total_of(call, c), total_of(call, call.channels + c))


@block_of(THREADS)
def scale_block(call: Scaling) -> None:
    """Compute `scale_loop`, a channel in each thread."""
    each_channel(call, lambda c, first, second: scale_channel(call, c, first, second))


@block_of(THREADS)
def gradient_scale_block(call: GradientScaling) -> None:
    """Compute `gradient_scale_loop`, a channel in each thread."""
    each_channel(call, lambda c, first, second: scale_gradients(call, c, first, second))
