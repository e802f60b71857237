"""Loop between the plain layout and channels last, which also converts between dtypes."""

from __future__ import annotations

import math

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec
from mxrun.codegen.arguments import Arguments, BFloat16s, Float32s, Integer
from mxrun.codegen.intrinsics import worker
from mxrun.codegen.jit import native
from mxrun.codegen.loops import rows_of_task
from mxrun.codegen.vectors import LANES, load_lanes, store_lanes, transpose_lanes
from mxrun.operator.native_kernel import LoopPart, Scratch, Slot

# Floats of a tile.
_TILE = LANES * LANES


class LayoutChange(Arguments):
    """Arguments of `layout_loop`: output [count, columns, rows] of data [count, rows, columns].

    Each is float32 or bfloat16; the other address is None. tiles: scratch space for two tiles of
    each thread.
    """

    count: Integer
    rows: Integer
    columns: Integer
    data: Float32s
    low_data: BFloat16s
    output: Float32s
    low_output: BFloat16s
    tiles: Float32s


@native
def layout_loop(call: LayoutChange) -> None:
    """Transpose the task's tiles of 16 rows and 16 columns."""
    down, across = (call.rows + LANES - 1) // LANES, (call.columns + LANES - 1) // LANES
    read = worker() * 2 * _TILE
    turned = read + _TILE
    for tile in rows_of_task(call.count * down * across):
        matrix, row = tile // (down * across), tile // across % down * LANES
        column = tile % across * LANES
        rows, columns = min(call.rows - row, LANES), min(call.columns - column, LANES)
        at = (matrix * call.rows + row) * call.columns + column
        for i in range(rows):
            place = at + i * call.columns
            if call.low_data is None:
                store_lanes(
                    call.tiles, read + i * LANES, load_lanes(call.data, place, columns), LANES
                )
            else:
                store_lanes(
                    call.tiles, read + i * LANES, load_lanes(call.low_data, place, columns), LANES
                )
        transpose_lanes(call.tiles, read, LANES, rows, columns, call.tiles, turned, LANES)
        to = (matrix * call.columns + column) * call.rows + row
        for j in range(columns):
            values = load_lanes(call.tiles, turned + j * LANES, rows)
            if call.low_output is None:
                store_lanes(call.output, to + j * call.rows, values, rows)
            else:
                store_lanes(call.low_output, to + j * call.rows, values, rows)


def layout_part(
    data: tuple[Slot, TensorSpec], output: tuple[Slot, TensorSpec], device: DeviceDescription
) -> LoopPart | None:
    """Return output = data, one of them plain and the other with channels last; None for others."""
    (source, given), (target, wanted) = data, output
    if {given.layout, wanted.layout} != {PLAIN, CHANNELS_LAST} or len(given.shape) < 3:
        return None
    if not {given.dtype, wanted.dtype} <= {FLOAT32, BFLOAT16}:
        return None
    sizes = given.shape[1], math.prod(given.shape[2:])
    rows, columns = sizes if given.layout == PLAIN else sizes[::-1]
    arguments = LayoutChange(
        count=given.shape[0],
        rows=rows,
        columns=columns,
        data=source if given.dtype == FLOAT32 else None,
        low_data=source if given.dtype == BFLOAT16 else None,
        output=target if wanted.dtype == FLOAT32 else None,
        low_output=target if wanted.dtype == BFLOAT16 else None,
        tiles=Scratch(),
    )
    tasks = device.tasks_for_elements(given.elements)
    return LoopPart(layout_loop, arguments, tasks, 2 * 4 * _TILE * device.workers(tasks))
