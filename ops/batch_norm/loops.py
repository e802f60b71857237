"""Batch normalisation as compiled loops over float32 or bfloat16 tensors.

The loops access memory in order, row by row of a task (`Tasks`) and one vector at a time. Four rows
at once are less work but slower, because the processor prefetches few sequential streams best (the
statistics of 51 MB on two cores: 2.5 ms instead of 1.8). Values per column are stored in arrays of
the thread:

    0 mean (or shift)   1 scale   2 beta   3 and 4 running sums, or scale and center   5 slope

where scale and beta are those of forward. At the end of a task the columns of each channel are
summed. All arithmetic is float32, whatever the tensors' dtype is.

Every loop that a team runs begins with the slots of `Tasks.arguments`, from which it computes its
tasks. Then follow 16 the threads' arrays, 17 how many of them are filled, and 18 to 23 their
sources [C], some absent. There is one native function per dtype; they differ in how they read their
slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.backend.jit import (
    Block,
    bfloat16s,
    float32s,
    inlined,
    integer,
    native,
    real,
)
from mxrun.backend.vectors import (
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
    accumulate,
    clear,
    place,
    runs_of,
    spread,
    store_sums,
    task_at,
    tasks_of,
)

# Elements of a channel whose mean is the shift; they are a prime number of elements apart.
SAMPLES = 16
_SAMPLE_STEP = 2_654_435_761
# Limits of the output, and how backward selects the gradients that pass: no limits; a rectifier or
# clip, whose input is recomputed from data; a rectifier, whose output is read.
NOT, RECTIFIED, CLIPPED, READ = range(4)


@inlined
def sample(block: Block, data: Any) -> None:
    """Body of shift_loop."""
    count, channels, inner = integer(block, 0), integer(block, 1), integer(block, 2)
    samples, shift = integer(block, 3), float32s(block, 5)
    step = LANES if inner == 1 else 1
    for c in range(channels):
        shift[c] = np.float32(0)
    for number in range(samples):
        position = number * _SAMPLE_STEP % count
        at = position // inner * integer(block, 6) + position % inner
        for c in range(0, channels, step):
            width = min(step, channels - c)
            accumulate(shift, c, width, load_lanes(data, at + c * inner, width))
    for c in range(channels):
        shift[c] /= np.float32(samples)


@native
def shift_loop(block: Block) -> None:
    """shift[c] = mean of a few scattered elements of channel c.

    Slots: elements per channel, channels, inner, samples, data, shift, elements of data from one
    plane of a channel to the next.
    """
    sample(block, float32s(block, 4))


@native
def shift_bfloat16_loop(block: Block) -> None:
    """shift_loop for bfloat16 data."""
    sample(block, bfloat16s(block, 4))


@inlined
def add_moments(data: Any, at: int, mine: Any, k: int, pitch: int, count: int) -> None:
    """Add a vector's distances from the shift, and their squares, to the sums."""
    value = subtract_lanes(load_lanes(data, at, count), load_lanes(mine, k, count))
    accumulate(mine, k + 3 * pitch, count, value)
    accumulate(mine, k + 4 * pitch, count, multiply_lanes(value, value))


@inlined
def measure(block: Block, data: Any) -> None:
    """Body of statistics_loop."""
    mine, sums, apart = float32s(block, 16), float32s(block, 25), integer(block, 26)
    stride, pitch, filled = integer(block, 2), integer(block, 14), -1
    begin, end, own = tasks_of(block)
    for task in range(begin, end):
        at, rows, columns, first, to = task_at(block, task)
        if first != filled:
            filled = first
            spread(block, mine, own, first)
        clear(block, mine, own, columns)
        run, runs = runs_of(block, columns, apart, apart)
        full, tail = run // LANES * LANES, run % LANES
        for row in range(rows):
            for number in range(runs):
                a, k = at + row * stride + number * run, own + number * run
                b = place(block, a, apart)
                for j in range(0, full, LANES):
                    add_moments(data, b + j, mine, k + j, pitch, LANES)
                if tail > 0:
                    add_moments(data, b + full, mine, k + full, pitch, tail)
        store_sums(block, mine, own, columns, sums, to + first)


@native
def statistics_loop(block: Block) -> None:
    """sums[k, 0, c] and sums[k, 1, c] = a task's sums of data - shift and of its square.

    Arrays: shift. Slots from 24: data, sums [partial sums, 2, C], data's pitch.
    """
    measure(block, float32s(block, 24))


@native
def statistics_bfloat16_loop(block: Block) -> None:
    """statistics_loop for bfloat16 data."""
    measure(block, bfloat16s(block, 24))


@inlined
def normalized(distance: Any, mine: Any, k: int, pitch: int, count: int) -> Any:
    """Return a vector of BatchNorm's output, from the distances from the mean."""
    value = multiply_lanes(distance, load_lanes(mine, k + pitch, count))
    return add_lanes(value, load_lanes(mine, k + 2 * pitch, count))


@inlined
def limited(block: Block, value: Any) -> Any:
    """Apply the rectifier or clip to a vector; NaN stays NaN."""
    found = value
    if integer(block, 27) == RECTIFIED:
        zero = lanes(np.float32(0))
        found = choose(exceeds(value, zero), value, zero)
    if integer(block, 27) == CLIPPED:
        low, high = lanes(real(block, 28)), lanes(real(block, 29))
        found = choose(above(low, value), lanes(real(block, 30)), value)
        found = choose(above(value, high), lanes(real(block, 31)), found)
    return found


@inlined
def normalize_vector(
    block: Block,
    data: Any,
    residual: Any,
    adds: bool,
    output: Any,
    at: int,
    data_at: int,
    output_at: int,
    mine: Any,
    k: int,
    pitch: int,
    count: int,
) -> None:
    """Compute a vector of the output."""
    distance = subtract_lanes(load_lanes(data, data_at, count), load_lanes(mine, k, count))
    value = normalized(distance, mine, k, pitch, count)
    if adds:
        value = add_lanes(stored_lanes(output, value), load_lanes(residual, at, count))
    store_lanes(output, output_at, limited(block, value), count)


@inlined
def normalize(block: Block, data: Any, output: Any, residual: Any) -> None:
    """Body of normalize_loop."""
    mine, adds = float32s(block, 16), integer(block, 26) != 0
    stride, pitch, filled = integer(block, 2), integer(block, 14), -1
    apart, output_apart = integer(block, 32), integer(block, 33)
    begin, end, own = tasks_of(block)
    # In reverse order, because the last data of the preceding loop are still in the cache.
    for task in range(end - 1, begin - 1, -1):
        at, rows, columns, first, _ = task_at(block, task)
        if first != filled:
            filled = first
            spread(block, mine, own, first)
        run, runs = runs_of(block, columns, apart, output_apart)
        full, tail = run // LANES * LANES, run % LANES
        for row in range(rows):
            for number in range(runs):
                a, k = at + row * stride + number * run, own + number * run
                b, c = place(block, a, apart), place(block, a, output_apart)
                for j in range(0, full, LANES):
                    normalize_vector(
                        *(block, data, residual, adds, output),
                        *(a + j, b + j, c + j, mine, k + j, pitch, LANES),
                    )
                if tail > 0:
                    normalize_vector(
                        *(block, data, residual, adds, output),
                        *(a + full, b + full, c + full, mine, k + full, pitch, tail),
                    )


@native
def normalize_loop(block: Block) -> None:
    """output = (data - mean) * scale + beta, then + residual, then limited, as requested.

    The output may overwrite data or residual. NaN stays NaN. The normalised value is rounded to the
    output's dtype before residual is added.

    Arrays: mean, scale, beta. Slots from 24: data, output, residual (may be absent), kind of limits
    (NOT, RECTIFIED or CLIPPED), smallest and largest value that clip does not change, clip's
    results for smaller and for larger values, the pitches of data and output.
    """
    normalize(block, float32s(block, 24), float32s(block, 25), float32s(block, 26))


@native
def normalize_bfloat16_loop(block: Block) -> None:
    """normalize_loop for bfloat16 data, residual and output."""
    normalize(block, bfloat16s(block, 24), bfloat16s(block, 25), bfloat16s(block, 26))


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
    low: Any,
    high: Any,
    grad: Any,
    output: Any,
    kind: int,
    distance: Any,
    at: int,
    mine: Any,
    k: int,
    pitch: int,
    count: int,
) -> Any:
    """Return a vector of the gradient that passes the limits, if there are any.

    Recomputing the limited value needs no memory and gives the same bits.
    """
    value = load_lanes(grad, at, count)
    if kind == RECTIFIED:
        value = passing(low, high, value, normalized(distance, mine, k, pitch, count), False)
    if kind == CLIPPED:
        value = passing(low, high, value, normalized(distance, mine, k, pitch, count), True)
    if kind == READ:
        value = passing(low, high, value, load_lanes(output, at, count), False)
    return value


@inlined
def add_gradient(
    low: Any,
    high: Any,
    data: Any,
    grad: Any,
    output: Any,
    kind: int,
    passed: Any,
    stores: bool,
    at: int,
    data_at: int,
    mine: Any,
    k: int,
    pitch: int,
    count: int,
) -> None:
    """Add a vector's gradients and their products with the distances from the mean to the sums."""
    distance = subtract_lanes(load_lanes(data, data_at, count), load_lanes(mine, k, count))
    value = gradient_vector(low, high, grad, output, kind, distance, at, mine, k, pitch, count)
    if stores:
        store_lanes(passed, at, value, count)
    accumulate(mine, k + 3 * pitch, count, value)
    accumulate(mine, k + 4 * pitch, count, multiply_lanes(value, distance))


@inlined
def add_gradients(block: Block, data: Any, grad: Any, output: Any, passed: Any) -> None:
    """Body of gradient_sums_loop."""
    mine, sums = float32s(block, 16), float32s(block, 30)
    kind, stores = integer(block, 27), integer(block, 31) != 0
    low, high = lanes(real(block, 28)), lanes(real(block, 29))
    stride, pitch, filled = integer(block, 2), integer(block, 14), -1
    begin, end, own = tasks_of(block)
    apart = integer(block, 32)
    for task in range(begin, end):
        at, rows, columns, first, to = task_at(block, task)
        if first != filled:
            filled = first
            spread(block, mine, own, first)
        clear(block, mine, own, columns)
        run, runs = runs_of(block, columns, apart, apart)
        full, tail = run // LANES * LANES, run % LANES
        for row in range(rows):
            for number in range(runs):
                a, k = at + row * stride + number * run, own + number * run
                b = place(block, a, apart)
                for j in range(0, full, LANES):
                    add_gradient(
                        *(low, high, data, grad, output, kind, passed, stores),
                        *(a + j, b + j, mine, k + j, pitch, LANES),
                    )
                if tail > 0:
                    add_gradient(
                        *(low, high, data, grad, output, kind, passed, stores),
                        *(a + full, b + full, mine, k + full, pitch, tail),
                    )
        store_sums(block, mine, own, columns, sums, to + first)


@native
def gradient_sums_loop(block: Block) -> None:
    """sums[k, 0, c] and sums[k, 1, c] = a task's sums of grad and of grad * (data - mean).

    A gradient that does not pass the limits counts as 0. The gradient that passes is stored in
    `passed` if that is present; it may overwrite grad.

    Arrays: mean, and forward's scale and beta if needed. Slots from 24: data, grad, output, kind of
    limits (RECTIFIED and CLIPPED: recomputed from scale and beta, READ: from output), lower and
    upper bound of the values that pass (a rectifier has only the lower), sums [partial sums, 2, C],
    passed (may be absent), data's pitch.
    """
    data, grad = float32s(block, 24), float32s(block, 25)
    add_gradients(block, data, grad, float32s(block, 26), float32s(block, 31))


@native
def gradient_sums_bfloat16_loop(block: Block) -> None:
    """gradient_sums_loop for bfloat16 data, grad, output and passed."""
    data, grad = bfloat16s(block, 24), bfloat16s(block, 25)
    add_gradients(block, data, grad, bfloat16s(block, 26), bfloat16s(block, 31))


@inlined
def data_gradient_vector(
    low: Any,
    high: Any,
    data: Any,
    grad: Any,
    output: Any,
    kind: int,
    data_grad: Any,
    adds: bool,
    at: int,
    data_at: int,
    mine: Any,
    k: int,
    pitch: int,
    count: int,
) -> None:
    """Write a vector of data's gradient, or add it after the rounding that a write performs."""
    distance = subtract_lanes(load_lanes(data, data_at, count), load_lanes(mine, k, count))
    value = gradient_vector(low, high, grad, output, kind, distance, at, mine, k, pitch, count)
    value = subtract_lanes(value, load_lanes(mine, k + 4 * pitch, count))
    along = multiply_lanes(distance, load_lanes(mine, k + 5 * pitch, count))
    value = multiply_lanes(subtract_lanes(value, along), load_lanes(mine, k + 3 * pitch, count))
    if adds:
        before = load_lanes(data_grad, at, count)
        store_lanes(data_grad, at, value, count)
        value = add_lanes(before, load_lanes(data_grad, at, count))
    store_lanes(data_grad, at, value, count)


@inlined
def data_gradients(block: Block, data: Any, grad: Any, output: Any, data_grad: Any) -> None:
    """Body of data_gradient_loop."""
    mine, kind, adds = float32s(block, 16), integer(block, 27), integer(block, 31) != 0
    low, high = lanes(real(block, 28)), lanes(real(block, 29))
    stride, pitch, filled = integer(block, 2), integer(block, 14), -1
    begin, end, own = tasks_of(block)
    apart = integer(block, 32)
    # In reverse order, because the last data of the preceding loop are still in the cache.
    for task in range(end - 1, begin - 1, -1):
        at, rows, columns, first, _ = task_at(block, task)
        if first != filled:
            filled = first
            spread(block, mine, own, first)
        run, runs = runs_of(block, columns, apart, apart)
        full, tail = run // LANES * LANES, run % LANES
        for row in range(rows):
            for number in range(runs):
                a, k = at + row * stride + number * run, own + number * run
                b = place(block, a, apart)
                for j in range(0, full, LANES):
                    data_gradient_vector(
                        *(low, high, data, grad, output, kind, data_grad, adds),
                        *(a + j, b + j, mine, k + j, pitch, LANES),
                    )
                if tail > 0:
                    data_gradient_vector(
                        *(low, high, data, grad, output, kind, data_grad, adds),
                        *(a + full, b + full, mine, k + full, pitch, tail),
                    )


@native
def data_gradient_loop(block: Block) -> None:
    """data_grad = (grad - center - (data - mean) * slope) * scale; it may overwrite data or grad.

    A gradient that does not pass the limits counts as 0.

    Arrays: mean, forward's scale and beta if needed, scale, center, slope. Slots from 24: data,
    grad, output, kind of limits, lower and upper bound of the values that pass, data_grad, whether
    to add to data_grad, which then must not share memory with other tensors, and data's pitch.
    """
    data, grad = float32s(block, 24), float32s(block, 25)
    data_gradients(block, data, grad, float32s(block, 26), float32s(block, 30))


@native
def data_gradient_bfloat16_loop(block: Block) -> None:
    """data_gradient_loop for bfloat16 data, grad, output and data_grad."""
    data, grad = bfloat16s(block, 24), bfloat16s(block, 25)
    data_gradients(block, data, grad, bfloat16s(block, 26), bfloat16s(block, 30))
