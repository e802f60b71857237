"""Sums over the rows of matrices in compiled loops: the gradients of biases.

Rows are added one after the other in blocks, and the blocks in order, all in float32. Blocks depend
on the number of rows alone, so that nothing depends on the team size, and an operator that adds its
rows while it computes them gets the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16
from mxrun.codegen.arguments import Arguments, Float32s, Floats, Integer
from mxrun.codegen.jit import inlined, native, share
from mxrun.codegen.vectors import LANES, add_lanes, lanes, load_lanes, store_lanes
from mxrun.operator.native_kernel import LoopPart, Place, Scratch, Slot

# Rows of a block: at least _MIN_ROWS, so that the sums of all blocks are much smaller than the
# matrix, and few blocks, but enough for large teams.
_MIN_ROWS = 64
_MAX_BLOCKS = 64
# Columns that are added at a time: four sums whose additions do not depend on each other.
_GROUP = 4 * LANES
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class RowBlocks:
    """Division of a matrix [rows, columns] into blocks of rows whose sums are added in order."""

    rows: int
    columns: int

    @property
    def rows_per_block(self) -> int:
        """Rows of every block but the last."""
        return max(_MIN_ROWS, -(-self.rows // _MAX_BLOCKS))

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.rows // self.rows_per_block)

    @property
    def sums_bytes(self) -> int:
        """Bytes of the sums of all blocks [blocks, columns]; 0 if there is one block."""
        return _FLOAT_BYTES * self.blocks * self.columns if self.blocks > 1 else 0

    def total_parts(
        self, sums: Place, total: Slot, device: DeviceDescription, scratch: int = 0
    ) -> list[LoopPart]:
        """Return total = sum of the blocks' sums, in order; none if there is one block.

        scratch: bytes of the scratch space if the sums begin it.
        """
        if self.blocks == 1:
            return []
        arguments = BlockTotals(columns=self.columns, blocks=self.blocks, sums=sums, total=total)
        team = device.team_for_elements(self.blocks * self.columns)
        return [LoopPart(block_totals_loop, arguments, team, scratch)]


class SummedColumns(Arguments):
    """Matrix [rows, columns] and the sums of its blocks [blocks, columns].

    groups: groups of columns, each of them one piece of work in every block.
    """

    rows: Integer
    columns: Integer
    blocks: Integer
    rows_per_block: Integer
    groups: Integer
    matrix: Floats
    sums: Float32s


@inlined
def sum_group(call: SummedColumns, first: int, last: int, c: int, to: int) -> None:
    """Write the sums of four vectors of columns, from column c on, of rows first to last - 1."""
    a, b, c2, d = lanes(0.0), lanes(0.0), lanes(0.0), lanes(0.0)
    for row in range(first, last):
        at = row * call.columns + c
        a = add_lanes(a, load_lanes(call.matrix, at, LANES))
        b = add_lanes(b, load_lanes(call.matrix, at + LANES, LANES))
        c2 = add_lanes(c2, load_lanes(call.matrix, at + 2 * LANES, LANES))
        d = add_lanes(d, load_lanes(call.matrix, at + 3 * LANES, LANES))
    store_lanes(call.sums, to, a, LANES)
    store_lanes(call.sums, to + LANES, b, LANES)
    store_lanes(call.sums, to + 2 * LANES, c2, LANES)
    store_lanes(call.sums, to + 3 * LANES, d, LANES)


@native
def column_sums_loop(call: SummedColumns) -> None:
    """sums[block, column] = sum of the block's rows, in order."""
    columns = call.columns
    # share() splits at multiples of 16, so each piece of work counts as 16 elements.
    begin, end = share(call.blocks * call.groups * 16)
    for piece in range(begin // 16, end // 16):
        block, c = piece // call.groups, piece % call.groups * _GROUP
        first = block * call.rows_per_block
        last = min(first + call.rows_per_block, call.rows)
        to = block * columns
        if c + _GROUP <= columns:
            sum_group(call, first, last, c, to + c)
        else:
            for j in range(c, columns, LANES):
                total, count = lanes(0.0), columns - j
                for row in range(first, last):
                    total = add_lanes(total, load_lanes(call.matrix, row * columns + j, count))
                store_lanes(call.sums, to + j, total, count)


class BlockTotals(Arguments):
    """Sums of blocks [blocks, columns] and their total [columns]."""

    columns: Integer
    blocks: Integer
    sums: Float32s
    total: Float32s


@native
def block_totals_loop(call: BlockTotals) -> None:
    """total[c] = sum of the blocks' sums, in order."""
    begin, end = share(call.columns)
    for c in range(begin, end, LANES):
        count, total = end - c, load_lanes(call.sums, c, end - c)
        for block in range(1, call.blocks):
            total = add_lanes(total, load_lanes(call.sums, block * call.columns + c, count))
        store_lanes(call.total, c, total, count)


def column_sum_parts(
    matrix: Slot, total: Slot, blocks: RowBlocks, dtype: str, device: DeviceDescription
) -> list[LoopPart]:
    """Return total = sum over the rows of a matrix of `dtype`, float32 or bfloat16."""
    sums: Place = Scratch() if blocks.blocks > 1 else total
    loop = column_sums_loop.bfloat16 if dtype == BFLOAT16 else column_sums_loop
    arguments = SummedColumns(
        rows=blocks.rows,
        columns=blocks.columns,
        blocks=blocks.blocks,
        rows_per_block=blocks.rows_per_block,
        groups=-(-blocks.columns // _GROUP),
        matrix=matrix,
        sums=sums,
    )
    team, scratch = device.team_for_elements(blocks.rows * blocks.columns), blocks.sums_bytes
    return [
        LoopPart(loop, arguments, team, scratch),
        *blocks.total_parts(sums, total, device, scratch),
    ]
