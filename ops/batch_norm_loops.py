"""Batch normalization as compiled loops on float32 memory, and how they cut a tensor into tasks.

A task is a block of a matrix: some rows of at most 512 columns that lie one behind the other. The
loops run along the columns of four rows at once, so that they become vector code whatever the
number of channels, and keep one running sum a column; at the end of a task the columns of a channel
are added up. The tasks follow from the shape alone: no sum depends on the team.

Every loop that a team runs begins with the slots of `Tasks.arguments` and finds its tasks by them.
What a thread writes along the columns lies in one block of its own, at constant distances: of one
address and up to eight rows read the compiler still asks at run time whether they overlap; of more
it makes no vector code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mxrun.backend.jit import Block, float32s, float64s, integer, native, piece, real, share
from mxrun.backend.vectors import (
    LANES,
    add_lanes,
    choose,
    exceeds,
    lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
    subtract_lanes,
)

# Most columns of a task.
_COLUMNS = 512
# From one array of a thread's own block to the next: not a multiple of 4 KiB, where they would
# fight for the same lines of the first cache.
_PITCH = _COLUMNS + 16
_FIRST, _SECOND, _THIRD = _PITCH, 2 * _PITCH, 3 * _PITCH
_BLOCK = 4 * _PITCH
BLOCK_BYTES = 4 * _BLOCK
# Elements that are worth a task of their own, and most tasks cut for the sake of large teams.
_ELEMENTS_PER_TASK = 16_384
_MOST_CUTS = 64
# Elements of a channel whose mean the others are measured from, a prime number of elements apart.
SAMPLES = 16
_SAMPLE_STEP = 2_654_435_761


@dataclass(frozen=True)
class Tasks:
    """data [before, channels, inner] in memory, cut into row_blocks times lines times cuts tasks.

    A row holds `lines` lines of `line` columns, each cut into `cuts` of `width` (the last may be
    shorter). With inner > 1 a line is one channel's plane, else there is one line of whole rows of
    channels, as many as fit.
    """

    before: int
    channels: int
    inner: int
    rows: int
    line: int
    lines: int
    cuts: int
    rows_per_block: int

    @staticmethod
    def of(before: int, channels: int, inner: int) -> Tasks:
        """The tasks of a tensor that is not empty."""
        elements = before * channels * inner
        if channels == 1:
            before, inner = before * inner, 1
        planes = inner > 1
        joined = 1 if planes else _joined(before, channels)
        rows = before // joined
        line, lines = (inner, channels) if planes else (joined * channels, 1)
        cuts = -(-line // _COLUMNS)
        wanted = min(elements // _ELEMENTS_PER_TASK, _MOST_CUTS) // (lines * cuts)
        # Four rows are taken at once.
        rows_per_block = -(-rows // max(4 * wanted, 4)) * 4
        return Tasks(before, channels, inner, rows, line, lines, cuts, rows_per_block)

    @property
    def row_blocks(self) -> int:
        """Into how many the rows are cut."""
        return -(-self.rows // self.rows_per_block)

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return self.row_blocks * self.lines * self.cuts

    @property
    def partial_sums(self) -> int:
        """How many tasks share a channel."""
        return self.row_blocks * (self.cuts if self.inner > 1 else 1)

    @property
    def elements_per_channel(self) -> int:
        """What the mean is taken over."""
        return self.before * self.inner

    def arguments(self, team: int) -> tuple[int, ...]:
        """The first slots of a team's loop.

        0 tasks, 1 tasks a thread, 2 columns between rows, 3 rows, 4 rows of a block, 5 lines,
        6 line, 7 cuts, 8 width, 9 channels, 10 columns between two of one channel, 11 channels
        between cuts, 12 and 13 partial sums between blocks of rows and between cuts.
        """
        width = -(-self.line // (16 * self.cuts)) * 16
        unit, step, sums = (1, 0, 1) if self.inner > 1 else (min(self.channels, width), width, 0)
        return (
            *(self.count, -(-self.count // team), self.lines * self.line, self.rows),
            *(self.rows_per_block, self.lines, self.line, self.cuts, width),
            *(self.channels, unit, step, self.cuts if sums else 1, sums),
        )


def _joined(rows: int, channels: int) -> int:
    """How many rows of channels make one row of a task: a divisor of `rows`."""
    most = max(_COLUMNS // channels, 1)
    return next(count for count in range(most, 0, -1) if rows % count == 0)


@piece
def task_at(block: Block, task: int) -> tuple[int, int, int, int, int]:
    """A task's place in memory, rows, columns, first channel and place among the partial sums."""
    rest = task // integer(block, 7)
    cut, row_block = task - rest * integer(block, 7), rest // integer(block, 5)
    number = rest - row_block * integer(block, 5)
    width, first_row = integer(block, 8), row_block * integer(block, 4)
    at = first_row * integer(block, 2) + number * integer(block, 6) + cut * width
    rows = min(integer(block, 4), integer(block, 3) - first_row)
    columns = min(width, integer(block, 6) - cut * width)
    sums = row_block * integer(block, 12) + cut * integer(block, 13)
    return at, rows, columns, number + cut * integer(block, 11), sums * 2 * integer(block, 9)


@piece
def spread(block: Block, mine: Any, own: int, values: Any, first: int) -> None:
    """One value a column: the channels over and over, a plane's throughout."""
    width, unit = integer(block, 8), integer(block, 10)
    for group in range(max(width // unit, 1)):
        for c in range(unit):
            if first + c < integer(block, 9):
                mine[own + group * unit + c] = values[first + c]


@piece
def clear(mine: Any, own: int, columns: int) -> None:
    """Both running sums from zero."""
    for j in range(own, own + columns):
        mine[j + _FIRST] = np.float32(0)
        mine[j + _SECOND] = np.float32(0)


@piece
def accumulate(mine: Any, place: int, left: int, p: Any, q: Any, r: Any, s: Any) -> None:
    """Four rows onto a running sum."""
    total = add_lanes(add_lanes(p, q), add_lanes(r, s))
    store_lanes(mine, place, add_lanes(load_lanes(mine, place, left), total), left)


@piece
def keep_sums(block: Block, mine: Any, own: int, columns: int, sums: Any, at: int) -> None:
    """sums[at + c] and sums[at + C + c] = the columns of a channel, half onto the other half."""
    unit = integer(block, 10)
    groups = columns // unit
    while groups > 1:
        half = (groups + 1) // 2
        for j in range(own + _FIRST, own + _FIRST + (groups - half) * unit):
            mine[j] += mine[j + half * unit]
            mine[j + _PITCH] += mine[j + _PITCH + half * unit]
        groups = half
    for c in range(min(unit, columns)):
        sums[at + c] = mine[own + _FIRST + c]
        sums[at + integer(block, 9) + c] = mine[own + _SECOND + c]


@native
def shift_loop(block: Block) -> None:
    """shift[c] = the mean of a few elements of channel c, taken here and there.

    Slots: elements of a channel, channels, inner, samples, data, shift.
    """
    count, channels, inner = integer(block, 0), integer(block, 1), integer(block, 2)
    data, shift = float32s(block, 4), float32s(block, 5)
    for c in range(channels):
        shift[c] = np.float32(0)
    for sample in range(integer(block, 3)):
        position = sample * _SAMPLE_STEP % count
        at = position // inner * channels * inner + position % inner
        for c in range(channels):
            shift[c] += data[at + c * inner]
    for c in range(channels):
        shift[c] /= np.float32(integer(block, 3))


@native
def statistics_loop(block: Block) -> None:
    """sums[k, 0, c] and sums[k, 1, c] = a task's sums of data - shift and of its square.

    Slots from 14 on: data, shift [C], sums [partial sums, 2, C], the threads' own blocks.
    """
    data, shift, sums = float32s(block, 14), float32s(block, 15), float32s(block, 16)
    mine, stride = float32s(block, 17), integer(block, 2)
    # share() cuts at multiples of 16; so can a task be the least that a thread takes.
    begin, end = share(block, 16 * integer(block, 0))
    own, filled = begin // 16 // integer(block, 1) * _BLOCK, -1
    for task in range(begin // 16, end // 16):
        at, rows, columns, first, to = task_at(block, task)
        if first != filled:
            filled = first
            spread(block, mine, own, shift, first)
        clear(mine, own, columns)
        for row in range(0, rows, 4):
            for j in range(0, columns, LANES):
                a, place, left = at + row * stride + j, own + j, columns - j
                # Of rows that are none nothing is read, neither of data nor of the shift.
                b = left if row + 1 < rows else 0
                c = left if row + 2 < rows else 0
                d = left if row + 3 < rows else 0
                k = load_lanes(mine, place, left)
                p = subtract_lanes(load_lanes(data, a, left), k)
                q = load_lanes(data, a + stride, b)
                q = subtract_lanes(q, load_lanes(mine, place, b))
                r = load_lanes(data, a + 2 * stride, c)
                r = subtract_lanes(r, load_lanes(mine, place, c))
                s = load_lanes(data, a + 3 * stride, d)
                s = subtract_lanes(s, load_lanes(mine, place, d))
                accumulate(mine, place + _FIRST, left, p, q, r, s)
                p, q = multiply_lanes(p, p), multiply_lanes(q, q)
                r, s = multiply_lanes(r, r), multiply_lanes(s, s)
                accumulate(mine, place + _SECOND, left, p, q, r, s)
        keep_sums(block, mine, own, columns, sums, to + first)


@native
def scale_loop(block: Block) -> None:
    """mean, var, scale = gamma / sqrt(var + eps), from the sums or, without sums, as given.

    Slots: channels, partial sums, elements of a channel, eps, sums, totals (float64 [2, C]), shift
    or the given mean, the given var, gamma (may be absent: 1), mean, scale, the outputs mean and
    var (may be absent).
    """
    channels, count, epsilon = integer(block, 0), integer(block, 2), np.float64(real(block, 3))
    sums, totals = float32s(block, 4), float64s(block, 5)
    shift, given, gamma = float32s(block, 6), float32s(block, 7), float32s(block, 8)
    mean, scale = float32s(block, 9), float32s(block, 10)
    mean_output, var_output = float32s(block, 11), float32s(block, 12)
    for j in range(2 * channels):
        totals[j] = 0.0
    for k in range(integer(block, 1)):
        for j in range(2 * channels):
            totals[j] += sums[2 * k * channels + j]
    for c in range(channels):
        # The average distance from the shift; none where the mean was given.
        distance = totals[c] / count
        average = shift[c] + distance
        variance = totals[channels + c] / count - distance * distance
        variance = 0.0 if variance < 0 else variance
        if integer(block, 1) == 0:
            variance = np.float64(given[c])
        factor = 1 / np.sqrt(variance + epsilon)
        mean[c] = average
        scale[c] = factor if integer(block, 8) == 0 else factor * gamma[c]
        if integer(block, 11) != 0:
            mean_output[c] = average
        if integer(block, 12) != 0:
            var_output[c] = variance


@native
def normalize_loop(block: Block) -> None:
    """output = (data - mean) * scale + beta, then + residual, then at least 0, as asked.

    The output may lie over data or residual. NaN stays NaN.

    Slots from 14 on: data, mean, scale and beta [C], output, the threads' own blocks, residual (may
    be absent), whether negative outputs become 0.
    """
    data, output, mine = float32s(block, 14), float32s(block, 18), float32s(block, 19)
    mean, scale, beta = float32s(block, 15), float32s(block, 16), float32s(block, 17)
    residual, zero = float32s(block, 20), lanes(np.float32(0))
    begin, end = share(block, 16 * integer(block, 0))
    own, filled = begin // 16 // integer(block, 1) * _BLOCK, -1
    # Backwards: what the loop before has read last is in the cache.
    for task in range(end // 16 - 1, begin // 16 - 1, -1):
        at, rows, columns, first, _ = task_at(block, task)
        if first != filled:
            filled = first
            spread(block, mine, own, mean, first)
            spread(block, mine, own + _FIRST, scale, first)
            spread(block, mine, own + _SECOND, beta, first)
        for row in range(rows):
            for j in range(0, columns, LANES):
                a, k, left = at + row * integer(block, 2) + j, own + j, columns - j
                value = subtract_lanes(load_lanes(data, a, left), load_lanes(mine, k, left))
                value = multiply_lanes(value, load_lanes(mine, k + _FIRST, left))
                value = add_lanes(value, load_lanes(mine, k + _SECOND, left))
                if integer(block, 20) != 0:
                    value = add_lanes(value, load_lanes(residual, a, left))
                if integer(block, 21) != 0:
                    value = choose(exceeds(value, zero), value, zero)
                store_lanes(output, a, value, left)


@native
def gradient_sums_loop(block: Block) -> None:
    """sums[k, 0, c] and sums[k, 1, c] = a task's sums of grad and of grad * (data - mean).

    Where an output is given, grad is 0 where that is not above 0, and kept in `passed` if that is
    there, which may lie over grad.

    Slots from 14 on: data, mean [C], sums [partial sums, 2, C], the threads' own blocks, grad,
    output and passed (may be absent).
    """
    data, mean, sums = float32s(block, 14), float32s(block, 15), float32s(block, 16)
    mine, grad = float32s(block, 17), float32s(block, 18)
    output, passed, zero = float32s(block, 19), float32s(block, 20), lanes(np.float32(0))
    stride, rectified = integer(block, 2), integer(block, 19) != 0
    begin, end = share(block, 16 * integer(block, 0))
    own, filled = begin // 16 // integer(block, 1) * _BLOCK, -1
    for task in range(begin // 16, end // 16):
        at, rows, columns, first, to = task_at(block, task)
        if first != filled:
            filled = first
            spread(block, mine, own, mean, first)
        clear(mine, own, columns)
        for row in range(0, rows, 4):
            for j in range(0, columns, LANES):
                place, left = own + j, columns - j
                a = at + row * stride + j
                b, c, d = a + stride, a + 2 * stride, a + 3 * stride
                # Rows that are none are read as zeros and not written.
                after_b = left if row + 1 < rows else 0
                after_c = left if row + 2 < rows else 0
                after_d = left if row + 3 < rows else 0
                p, q = load_lanes(grad, a, left), load_lanes(grad, b, after_b)
                r, s = load_lanes(grad, c, after_c), load_lanes(grad, d, after_d)
                if rectified:
                    p = choose(exceeds(load_lanes(output, a, left), zero), p, zero)
                    q = choose(exceeds(load_lanes(output, b, after_b), zero), q, zero)
                    r = choose(exceeds(load_lanes(output, c, after_c), zero), r, zero)
                    s = choose(exceeds(load_lanes(output, d, after_d), zero), s, zero)
                    if integer(block, 20) != 0:
                        store_lanes(passed, a, p, left)
                        store_lanes(passed, b, q, after_b)
                        store_lanes(passed, c, r, after_c)
                        store_lanes(passed, d, s, after_d)
                accumulate(mine, place + _FIRST, left, p, q, r, s)
                k = load_lanes(mine, place, left)
                p = multiply_lanes(p, subtract_lanes(load_lanes(data, a, left), k))
                q = multiply_lanes(q, subtract_lanes(load_lanes(data, b, after_b), k))
                r = multiply_lanes(r, subtract_lanes(load_lanes(data, c, after_c), k))
                s = multiply_lanes(s, subtract_lanes(load_lanes(data, d, after_d), k))
                accumulate(mine, place + _SECOND, left, p, q, r, s)
        keep_sums(block, mine, own, columns, sums, to + first)


@native
def gradient_scale_loop(block: Block) -> None:
    """The gradients of gamma and beta, and what data's is made of: scale, center, slope.

    With x = (data - mean) * f and f = 1 / sqrt(var + eps): scale = gamma f, center = sum(grad) / n,
    slope = f sum(grad x) / n; both are 0 where the statistics were given.

    Slots: channels, partial sums, n, eps, sums, totals (float64 [2, C]), var, gamma (may be absent:
    1), scale, center, slope, the gradients of gamma and beta (may be absent), whether the
    statistics were given.
    """
    channels, count, epsilon = integer(block, 0), integer(block, 2), np.float64(real(block, 3))
    sums, totals = float32s(block, 4), float64s(block, 5)
    var, gamma, scale = float32s(block, 6), float32s(block, 7), float32s(block, 8)
    center, slope = float32s(block, 9), float32s(block, 10)
    gamma_grad, beta_grad = float32s(block, 11), float32s(block, 12)
    for j in range(2 * channels):
        totals[j] = 0.0
    for k in range(integer(block, 1)):
        for j in range(2 * channels):
            totals[j] += sums[2 * k * channels + j]
    for c in range(channels):
        factor = 1 / np.sqrt(np.float64(var[c]) + epsilon)
        first, second = totals[c], totals[channels + c] * factor
        scale[c] = factor if integer(block, 7) == 0 else factor * gamma[c]
        center[c] = first / count if integer(block, 13) == 0 else 0.0
        slope[c] = second / count * factor if integer(block, 13) == 0 else 0.0
        if integer(block, 11) != 0:
            gamma_grad[c] = second
        if integer(block, 12) != 0:
            beta_grad[c] = first


@native
def data_gradient_loop(block: Block) -> None:
    """data_grad = (grad - center - (data - mean) * slope) * scale; it may lie over grad.

    Slots from 14 on: data, mean, scale, center and slope [C], grad, data_grad, the threads' own
    blocks.
    """
    data, mean, scale = float32s(block, 14), float32s(block, 15), float32s(block, 16)
    center, slope = float32s(block, 17), float32s(block, 18)
    grad, data_grad, mine = float32s(block, 19), float32s(block, 20), float32s(block, 21)
    begin, end = share(block, 16 * integer(block, 0))
    own, filled = begin // 16 // integer(block, 1) * _BLOCK, -1
    # Backwards: what the loop before has read last is in the cache.
    for task in range(end // 16 - 1, begin // 16 - 1, -1):
        at, rows, columns, first, _ = task_at(block, task)
        if first != filled:
            filled = first
            spread(block, mine, own, mean, first)
            spread(block, mine, own + _FIRST, scale, first)
            spread(block, mine, own + _SECOND, center, first)
            spread(block, mine, own + _THIRD, slope, first)
        for row in range(rows):
            for j in range(0, columns, LANES):
                a, k, left = at + row * integer(block, 2) + j, own + j, columns - j
                value = subtract_lanes(load_lanes(data, a, left), load_lanes(mine, k, left))
                value = multiply_lanes(value, load_lanes(mine, k + _THIRD, left))
                part = subtract_lanes(
                    load_lanes(grad, a, left), load_lanes(mine, k + _SECOND, left)
                )
                value = subtract_lanes(part, value)
                value = multiply_lanes(value, load_lanes(mine, k + _FIRST, left))
                store_lanes(data_grad, a, value, left)
