"""Packing of recurrent weights into the panels that steps multiply."""

from __future__ import annotations

from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.loops import rows_of_task
from mxrun.codegen.vectors import (
    LANES,
    PANEL_COLUMNS,
    lanes,
    load_lanes,
    pair_lanes,
    store_lanes,
    transpose_lanes,
)


class Packing(Arguments):
    """Arguments of `pack_loop`: a weight as panels of PANEL_COLUMNS columns, the last padded.

    weight: stored [inner, columns], or [columns, inner] if it is transposed. are_pairs: whether two
    neighbouring elements of a column are rounded to bfloat16 and stored in the place of one; each
    panel then fills half of its space.
    """

    columns: Integer
    inner: Integer
    is_transposed: Integer
    are_pairs: Integer
    weight: Float32s
    panels: Float32s


@inlined
def pack_panel(call: Packing, start: int, first: int) -> None:
    """Store the panel that begins with column `first`."""
    columns, inner = call.columns, call.inner
    if call.is_transposed == 0:
        for k in range(inner):
            for j in range(0, PANEL_COLUMNS, LANES):
                read = k * columns + first + j
                row = load_lanes(call.weight, read, max(columns - first - j, 0))
                store_lanes(call.panels, start + k * PANEL_COLUMNS + j, row, LANES)
    else:
        if first + PANEL_COLUMNS > columns:
            for at in range(start, start + inner * PANEL_COLUMNS, LANES):
                store_lanes(call.panels, at, lanes(0.0), LANES)
        for k in range(0, inner, LANES):
            for j in range(0, PANEL_COLUMNS, LANES):
                if first + j < columns:
                    transpose_lanes(
                        call.weight,
                        (first + j) * inner + k,
                        inner,
                        columns - first - j,
                        inner - k,
                        call.panels,
                        start + k * PANEL_COLUMNS + j,
                        PANEL_COLUMNS,
                    )


@native
def pack_loop(call: Packing) -> None:
    """panels[p, k, j] = weight[k, PANEL_COLUMNS * p + j], 0 in columns that do not exist."""
    count = (call.columns + PANEL_COLUMNS - 1) // PANEL_COLUMNS
    for p in rows_of_task(count):
        start = p * PANEL_COLUMNS * call.inner
        pack_panel(call, start, p * PANEL_COLUMNS)
        if call.are_pairs:
            for k in range(0, call.inner, 2):
                for j in range(start, start + PANEL_COLUMNS, LANES):
                    low = load_lanes(call.panels, j + k * PANEL_COLUMNS, LANES)
                    high = load_lanes(call.panels, j + (k + 1) * PANEL_COLUMNS, LANES)
                    pair = pair_lanes(low, high)
                    store_lanes(call.panels, j + k // 2 * PANEL_COLUMNS, pair, LANES)
