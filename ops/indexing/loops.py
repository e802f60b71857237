"""Gathering of rows by index and the addition of their gradients, in float32 or bfloat16.

Data are [before, size, inner] rows of `columns` elements. Row r of the output, [before, count,
inner], is one of data's rows before, at an index, and inner; count or inner is 1.
"""

from __future__ import annotations

from typing import Any

from mxrun.codegen.arguments import Arguments, Float32s, Floats, Int32s, Integer, Real
from mxrun.codegen.jit import inlined, native, share
from mxrun.codegen.vectors import LANES, lanes, load_lanes, store_lanes
from mxrun.ops.vector_stores import put_lanes

# Treatment of indices outside of the axis.
CLIP, WRAP = range(2)


class IndexedRows(Arguments):
    """Row r of `rows` has the index `indices[r % index_count] + offset`, or offset if None.

    mode: CLIP or WRAP.
    """

    rows: Integer
    columns: Integer
    size: Integer
    count: Integer
    inner: Integer
    indices: Int32s
    index_count: Integer
    offset: Integer
    mode: Integer


@inlined
def data_row(call: IndexedRows, row: int) -> Any:
    """Return the number of data's row that a row of the output equals."""
    size, inner, index = call.size, call.inner, call.offset
    if call.indices is not None:
        index += call.indices[row % call.index_count]
    if call.mode == WRAP:
        index = index % size
    index = min(max(index, 0), size - 1)
    return row // (call.count * inner) * size * inner + index * inner + row % inner


class RowGathering(IndexedRows):
    """Arguments of `gather_rows_loop`."""

    data: Floats
    output: Floats
    is_added: Integer


@native
def gather_rows_loop(call: RowGathering) -> None:
    """output[r, :] = data[row of r, :], or added."""
    columns = call.columns
    at, end = share(call.rows * columns)
    while at < end:
        row = at // columns
        column = at - row * columns
        width = min(columns - column, end - at)
        read = data_row(call, row) * columns + column
        for j in range(0, width, LANES):
            value = load_lanes(call.data, read + j, width - j)
            put_lanes(call.output, at + j, value, width - j, call.is_added != 0)
        at += width


class RowScattering(IndexedRows):
    """Arguments of `scatter_rows_loop`; sums: float32, zero or with what is added to."""

    grad: Floats
    sums: Float32s


@native
def scatter_rows_loop(call: RowScattering) -> None:
    """sums[row of r, :] += grad[r, :] for r in order.

    Each thread adds columns of its own, so that no sum depends on the team size.
    """
    columns, count = call.columns, call.count
    position, end = share(call.rows // count * columns)
    while position < end:
        group = position // columns
        column = position - group * columns
        width = min(columns - column, end - position)
        for row in range(group * count, (group + 1) * count):
            read, write = row * columns + column, data_row(call, row) * columns + column
            for j in range(0, width, LANES):
                value = load_lanes(call.grad, read + j, width - j)
                put_lanes(call.sums, write + j, value, width - j, True)
        position += width


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
    for at in range(begin, end, LANES):
        value = load_lanes(call.sums, at, end - at)
        put_lanes(call.output, at, value, end - at, call.is_added != 0)


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
    depth = call.depth
    position, end = share(call.count * depth)
    off = lanes(call.off)
    while position < end:
        row = position // depth
        column = position - row * depth
        width = min(depth - column, end - position)
        for j in range(0, width, LANES):
            store_lanes(call.output, position + j, off, width - j)
        place = call.indices[row] - column
        if 0 <= place < width:
            call.output[position + place] = call.on
        position += width
