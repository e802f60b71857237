"""Gathering of rows by index and the addition of their gradients, in float32 or bfloat16.

Data are [before, size, inner] rows of `columns` elements. Row r of the output, [before, count,
inner], is one of data's rows before, at an index, and inner; count or inner is 1.
"""

from __future__ import annotations

from typing import Any

from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Floats, Int32s, Integer, Real
from mxrun.codegen.intrinsics import share, worker
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.loops import runs_of_task, vectors
from mxrun.codegen.vectors import LANES, add_lanes, lanes, load_lanes, store_lanes, wide_lanes
from mxrun.ops.rows import clear
from mxrun.ops.vector_stores import put_lanes

# Treatment of indices outside of the axis.
CLIP, WRAP = range(2)
# Rows that the hardware prefetcher can follow.
_NEAR_ROWS = 8


class RowSelection(Arguments):
    """Geometry of a selection; mode: CLIP or WRAP."""

    rows: Integer
    columns: Integer
    size: Integer
    count: Integer = 1
    inner: Integer = 1
    index_count: Integer = 1
    offset: Integer = 0
    mode: Integer = CLIP


class IndexedRows(RowSelection):
    """Row r of `rows` has the index `indices[r % index_count] + offset`, or offset if None."""

    indices: Int32s


@inlined
def index_at(call: IndexedRows, place: int) -> Any:
    """Return the index at a place of the indices, within the axis."""
    index = call.offset
    if call.indices is not None:
        index += call.indices[place]
    if call.mode == WRAP:
        index = index % call.size
    return min(max(index, 0), call.size - 1)


@inlined
def data_row(call: IndexedRows, row: int) -> Any:
    """Return the number of data's row that a row of the output equals."""
    size, inner, index = call.size, call.inner, index_at(call, row % call.index_count)
    return row // (call.count * inner) * size * inner + index * inner + row % inner


class RowGathering(IndexedRows):
    """Arguments of `gather_rows_loop`."""

    data: Floats
    output: Floats
    is_added: Integer


@native
def gather_rows_loop(call: RowGathering) -> None:
    """output[r, :] = data[row of r, :], or added."""
    for row, column, at, width in runs_of_task(call.rows, call.columns):
        read = data_row(call, row) * call.columns + column
        for j, count in vectors(0, width):
            value = load_lanes(call.data, read + j, count)
            put_lanes(call.output, at + j, value, count, call.is_added != 0)


class OrderedRows(IndexedRows):
    """Rows of a group in the order of their indices: `order` [count], for inner = 1.

    ends [size]: the first place in `order` after the rows of each index.
    """

    order: Int32s
    ends: Int32s


@native
def order_rows_loop(call: OrderedRows) -> None:
    """Sort the rows of a group by their indices, on one thread; rows of one index in order."""
    order, ends, places = call.order, call.ends, 0
    for index in range(call.size):
        ends[index] = 0
    for row in range(call.count):
        ends[index_at(call, row)] += 1
    for index in range(call.size):
        number = ends[index]
        ends[index] = places
        places += number
    for row in range(call.count):
        index = index_at(call, row)
        order[ends[index]] = row
        ends[index] += 1


class RowSums(OrderedRows):
    """Arguments of `sum_rows_loop`; sums: scratch [columns] for each thread.

    is_added: whether the sums are added to output. writes_zeros: whether rows of output without an
    index are cleared, else they are left alone.
    """

    grad: Floats
    output: Floats
    is_added: Integer
    writes_zeros: Integer
    sums: Float64s


@native
def sum_rows_loop(call: RowSums) -> None:
    """output[r, :] = float64 sum of the grad[n, :] whose index is r in order, or added."""
    columns, size, order, grad, sums = call.columns, call.size, call.order, call.grad, call.sums
    # Whole vectors of the sums are stored, also beyond the last column.
    own = worker() * ((columns + LANES - 1) // LANES * LANES)
    is_added = call.is_added != 0
    for row, column, at, width in runs_of_task(call.rows // call.count * size, columns):
        index, first, last = row % size, 0, call.ends[row % size]
        if index > 0:
            first = call.ends[index - 1]
        read = row // size * call.count * columns + column
        if first == last and call.writes_zeros:
            clear(call.output, at, width)
        for place in range(first, last, _NEAR_ROWS):
            beyond = min(place + _NEAR_ROWS, last)
            for j in range(0, width, LANES):
                total = wide_lanes(lanes(0.0))
                if place > first:
                    total = load_lanes(sums, own + j, LANES)
                for near in range(place, beyond):
                    k = read + order[near] * columns + j
                    total = add_lanes(total, load_lanes(grad, k, width - j))
                if beyond < last:
                    store_lanes(sums, own + j, total, LANES)
                else:
                    put_lanes(call.output, at + j, total, width - j, is_added)


class RowScattering(IndexedRows):
    """Arguments of `scatter_rows_loop`; sums: float32, zero or with what is added to."""

    grad: Floats
    sums: Float32s


@native
def scatter_rows_loop(call: RowScattering) -> None:
    """sums[row of r, :] += grad[r, :], where no two rows have the same row of data."""
    for row, column, at, width in runs_of_task(call.rows, call.columns):
        write = data_row(call, row) * call.columns + column
        for j, count in vectors(0, width):
            put_lanes(call.sums, write + j, load_lanes(call.grad, at + j, count), count, True)


class SumStoring(Arguments):
    """Arguments of `store_sums_loop`."""

    elements: Integer
    sums: Float32s
    output: Floats
    is_added: Integer


@native
def store_sums_loop(call: SumStoring) -> None:
    """output = sums, rounded to its dtype, or added."""
    begin, end = share(call.elements)
    for at, count in vectors(begin, end):
        put_lanes(call.output, at, load_lanes(call.sums, at, count), count, call.is_added != 0)


class OneHotRows(Arguments):
    """Arguments of `one_hot_loop`: output [count, depth]."""

    count: Integer
    depth: Integer
    indices: Int32s
    on: Real
    off: Real
    output: Float32s


@native
def one_hot_loop(call: OneHotRows) -> None:
    """output[n, c] = on where c = indices[n], else off."""
    off = lanes(call.off)
    for row, column, at, width in runs_of_task(call.count, call.depth):
        for j, count in vectors(at, at + width):
            store_lanes(call.output, j, off, count)
        place = call.indices[row] - column
        if 0 <= place < width:
            call.output[at + place] = call.on
