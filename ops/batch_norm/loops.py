"""Batch normalisation as compiled loops over float32 or bfloat16 tensors.

The loops access memory in order, row by row of a piece (`Pieces`), one vector at a time. Four rows
at once are less work but slower, because the processor prefetches few sequential streams best (the
statistics of 51 MB on two cores: 2.5 ms instead of 1.8). Values per column are stored in arrays of
the thread:

    0 mean (or shift)   1 scale   2 beta   3 and 4 running sums, or scale and center   5 slope

where scale and beta are those of forward. At the end of a piece the columns of each channel are
summed. All arithmetic is float32, whatever the tensors' dtype is.

In the inlined functions `k` is the place of a vector in the first array of the thread, and `count`
the number of its elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Floats, Integer, Real
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.vectors import (
    LANES,
    above,
    add_lanes,
    choose,
    exceeds,
    lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
    stored_lanes,
    subtract_lanes,
)
from mxrun.ops.batch_norm.walk import (
    Walk,
    accumulate,
    clear,
    piece_at,
    pieces_of,
    place,
    runs_of,
    spread,
    store_sums,
)

# Elements of a channel whose mean is the shift; they are a prime number of elements apart.
SAMPLES = 16
SAMPLE_STEP = 2_654_435_761
# Limits of the output, and how backward selects the gradients that pass: no limits; a rectifier or
# clip, whose input is recomputed from data; a rectifier, whose output is read.
NOT, RECTIFIED, CLIPPED, READ = range(4)


class Sampling(Arguments):
    """Arguments of `shift_loop`, for data [count / inner, channels, inner].

    count: elements per channel. data_pitch: elements from one plane of a channel to the next.
    """

    count: Integer
    channels: Integer
    inner: Integer
    samples: Integer
    data: Floats
    data_pitch: Integer
    shift: Float32s


@native
def shift_loop(call: Sampling) -> None:
    """shift[c] = mean of a few scattered elements of channel c."""
    channels, inner, shift = call.channels, call.inner, call.shift
    step = LANES if inner == 1 else 1
    for c in range(channels):
        shift[c] = np.float32(0)
    for number in range(call.samples):
        position = number * SAMPLE_STEP % call.count
        at = position // inner * call.data_pitch + position % inner
        for c in range(0, channels, step):
            width = min(step, channels - c)
            accumulate(shift, c, width, load_lanes(call.data, at + c * inner, width))
    for c in range(channels):
        shift[c] /= np.float32(call.samples)


@inlined
def vectors_of_piece(
    call: Walk, own: int, at: int, rows: int, columns: int, pitch: int
) -> Iterator[tuple[Any, int, int]]:
    """Yield the places of every vector of a piece, its place in the arrays and its elements.

    Places are those in a contiguous tensor, in data, and in a tensor whose rows of channels have
    that pitch.
    """
    channels = call.channels
    run, runs = runs_of(columns, channels, call.data_pitch, pitch)
    # Divided once, not by `vectors` for every run: planes of bfloat16 take a tenth less time.
    full, tail = run // LANES * LANES, run % LANES
    for row in range(rows):
        for number in range(runs):
            a, k = at + row * call.stride + number * run, own + number * run
            b, c = place(a, channels, call.data_pitch), place(a, channels, pitch)
            for j in range(0, full, LANES):
                yield (a + j, b + j, c + j), k + j, LANES
            if tail > 0:
                yield (a + full, b + full, c + full), k + full, tail


@inlined
def summed_vectors(call: Walk, sums: Any) -> Iterator[tuple[Any, int, int]]:
    """Yield the vectors of the task's pieces, and store the running sums of each in `sums`."""
    filled = -1
    begin, end, own = pieces_of(call)
    for piece in range(begin, end):
        at, rows, columns, first, to = piece_at(call, piece)
        if first != filled:
            filled = first
            spread(call, own, first)
        clear(call, own, columns)
        yield from vectors_of_piece(call, own, at, rows, columns, call.data_pitch)
        store_sums(call, own, columns, sums, to + first)


@inlined
def written_vectors(call: Walk, pitch: int) -> Iterator[tuple[Any, int, int]]:
    """Yield the vectors of the task's pieces, those of the last one first.

    The last data of the preceding loop are still in the cache.
    """
    filled = -1
    begin, end, own = pieces_of(call)
    for piece in range(end - 1, begin - 1, -1):
        at, rows, columns, first, _ = piece_at(call, piece)
        if first != filled:
            filled = first
            spread(call, own, first)
        yield from vectors_of_piece(call, own, at, rows, columns, pitch)


class Statistics(Walk):
    """Arguments of `statistics_loop`.

    sources: shift. sums [partial sums, 2, channels].
    """

    sums: Float32s


@native
def statistics_loop(call: Statistics) -> None:
    """sums[k, 0, c] and sums[k, 1, c] = a piece's sums of data - shift and of its square."""
    mine, pitch = call.arrays, call.array_pitch
    for (_, at, _), k, count in summed_vectors(call, call.sums):
        value = subtract_lanes(load_lanes(call.data, at, count), load_lanes(mine, k, count))
        accumulate(mine, k + 3 * pitch, count, value)
        accumulate(mine, k + 4 * pitch, count, multiply_lanes(value, value))


class Normalization(Walk):
    """Arguments of `normalize_loop`.

    sources: mean, scale, beta. output_pitch: elements of output from one row of channels to the
    next. residual: None if nothing is added.

    limits: NOT, RECTIFIED or CLIPPED. low, high: smallest and largest value that clip does not
    change. floor, ceiling: clip's results for smaller and for larger values.
    """

    output: Floats
    output_pitch: Integer
    residual: Floats
    limits: Integer
    low: Real
    high: Real
    floor: Real
    ceiling: Real


@inlined
def normalized(call: Walk, distance: Any, k: int, count: int) -> Any:
    """Return a vector of BatchNorm's output, from the distances from the mean."""
    mine, pitch = call.arrays, call.array_pitch
    value = multiply_lanes(distance, load_lanes(mine, k + pitch, count))
    return add_lanes(value, load_lanes(mine, k + 2 * pitch, count))


@inlined
def limited(call: Normalization, value: Any) -> Any:
    """Apply the rectifier or clip to a vector; NaN stays NaN."""
    found = value
    if call.limits == RECTIFIED:
        zero = lanes(np.float32(0))
        found = choose(exceeds(value, zero), value, zero)
    if call.limits == CLIPPED:
        low, high = lanes(call.low), lanes(call.high)
        found = choose(above(low, value), lanes(call.floor), value)
        found = choose(above(value, high), lanes(call.ceiling), found)
    return found


@native
def normalize_loop(call: Normalization) -> None:
    """output = (data - mean) * scale + beta, then + residual, then limited, as requested.

    The output may overwrite data or residual. NaN stays NaN. The normalised value is rounded to the
    output's dtype before residual is added.
    """
    for (at, data_at, output_at), k, count in written_vectors(call, call.output_pitch):
        data = load_lanes(call.data, data_at, count)
        distance = subtract_lanes(data, load_lanes(call.arrays, k, count))
        value = normalized(call, distance, k, count)
        if call.residual is not None:
            added = load_lanes(call.residual, at, count)
            value = add_lanes(stored_lanes(call.output, value), added)
        store_lanes(call.output, output_at, limited(call, value), count)


class PassingGradient(Walk):
    """Arguments of the loops that select the gradients that pass the limits.

    sources: mean, and forward's scale and beta if needed.

    limits: NOT; RECTIFIED or CLIPPED: recomputed from scale and beta; READ: from output, which the
    others do not read. low, high: bounds of the values that pass; a rectifier has only the lower.
    """

    grad: Floats
    output: Floats
    limits: Integer
    low: Real
    high: Real


@inlined
def passing(low: Any, high: Any, value: Any, by: Any, clips: bool) -> Any:
    """Return the gradient that passes the limits, given clip's input or a rectifier's output.

    Where a rectifier's output is not above 0, the result is the gradient times the output: 0 or
    NaN.
    """
    zero = lanes(np.float32(0))
    if clips:
        found = choose(above(by, high), zero, choose(above(low, by), zero, value))
    else:
        missing = choose(exceeds(by, lanes(np.float32(np.inf))), by, zero)
        found = choose(above(by, low), value, multiply_lanes(value, missing))
    return found


@inlined
def gradient_vector(
    call: PassingGradient, bounds: Any, distance: Any, at: int, k: int, count: int
) -> Any:
    """Return a vector of the gradient that passes the limits, if there are any.

    Recomputing the limited value needs no memory and gives the same bits.
    """
    low, high = bounds
    value = load_lanes(call.grad, at, count)
    if call.limits == RECTIFIED:
        value = passing(low, high, value, normalized(call, distance, k, count), False)
    if call.limits == CLIPPED:
        value = passing(low, high, value, normalized(call, distance, k, count), True)
    if call.limits == READ:
        value = passing(low, high, value, load_lanes(call.output, at, count), False)
    return value


class GradientSums(PassingGradient):
    """Arguments of `gradient_sums_loop`.

    sums [partial sums, 2, channels]. passed: memory for the gradient that passes; it may be grad.
    None: it is not stored.
    """

    sums: Float32s
    passed: Floats


@native
def gradient_sums_loop(call: GradientSums) -> None:
    """sums[k, 0, c] and sums[k, 1, c] = a piece's sums of grad and of grad * (data - mean).

    A gradient that does not pass the limits counts as 0.
    """
    mine, pitch, bounds = call.arrays, call.array_pitch, (lanes(call.low), lanes(call.high))
    for (at, data_at, _), k, count in summed_vectors(call, call.sums):
        mean = load_lanes(mine, k, count)
        distance = subtract_lanes(load_lanes(call.data, data_at, count), mean)
        value = gradient_vector(call, bounds, distance, at, k, count)
        if call.passed is not None:
            store_lanes(call.passed, at, value, count)
        accumulate(mine, k + 3 * pitch, count, value)
        accumulate(mine, k + 4 * pitch, count, multiply_lanes(value, distance))


class DataGradient(PassingGradient):
    """Arguments of `data_gradient_loop`.

    sources: mean, forward's scale and beta if needed, scale, center, slope. data_grad may be data
    or grad, but if `is_added`, it shares no memory with other tensors.
    """

    data_grad: Floats
    is_added: Integer


@native
def data_gradient_loop(call: DataGradient) -> None:
    """data_grad = (grad - center - (data - mean) * slope) * scale, or added to data_grad.

    A gradient that does not pass the limits counts as 0.
    """
    mine, pitch, data_grad = call.arrays, call.array_pitch, call.data_grad
    bounds = (lanes(call.low), lanes(call.high))
    for (at, data_at, _), k, count in written_vectors(call, call.data_pitch):
        data, mean = load_lanes(call.data, data_at, count), load_lanes(mine, k, count)
        distance = subtract_lanes(data, mean)
        value = gradient_vector(call, bounds, distance, at, k, count)
        value = subtract_lanes(value, load_lanes(mine, k + 4 * pitch, count))
        along = multiply_lanes(distance, load_lanes(mine, k + 5 * pitch, count))
        value = multiply_lanes(subtract_lanes(value, along), load_lanes(mine, k + 3 * pitch, count))
        if call.is_added:
            # It is added after the rounding that a write performs.
            before = load_lanes(data_grad, at, count)
            store_lanes(data_grad, at, value, count)
            value = add_lanes(before, load_lanes(data_grad, at, count))
        store_lanes(data_grad, at, value, count)
