"""Sums over the rows of matrices in compiled loops: the gradients of biases and of scales.

Four rows are added in float32, because converting each would take half as long again; those sums
and the blocks of rows are added in order, in float64. Blocks depend on the number of rows alone, so
that nothing depends on the tasks, and an operator that adds its rows while it computes them
gets the same bits. On a GPU a thread adds the rows of a column, in the same order.
"""

from __future__ import annotations

from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.device import CUDA, DeviceDescription
from mxrun.base.dtype import BFLOAT16
from mxrun.base.tensor import Shape
from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Floats, Integer
from mxrun.codegen.block_function import block_of
from mxrun.codegen.blocks import threads
from mxrun.codegen.intrinsics import current_task, share
from mxrun.codegen.jit import compact, inlined
from mxrun.codegen.loops import rows_of_task, vectors
from mxrun.codegen.vectors import LANES, add_lanes, lanes, load_lanes, store_lanes, wide_lanes
from mxrun.operator.native_kernel import JoinedPart, KernelPart, LoopPart, Place, Scratch, Slot
from mxrun.ops.rows import near_rows

# Rows of a block: at least _MIN_ROWS, so that the sums of all blocks are much smaller than the
# matrix, and few blocks, but enough for many threads.
_MIN_ROWS = 32
_MAX_BLOCKS = 64
# Columns whose sums stay in the L1 cache while rows are added.
_PART = 2048
# Columns that are added at a time: four sums whose additions do not depend on each other.
GROUP = 4 * LANES
_DOUBLE_BYTES = 8
# Threads of a block on a GPU, each of which has a column.
_THREADS = 256


@dataclass(frozen=True)
class RowBlocks:
    """Division of a matrix [rows, columns] into blocks of rows whose sums are added in order.

    fold: number of parts of a row that are added to one total.
    """

    rows: int
    columns: int
    fold: int = 1

    @staticmethod
    def of_matrix(rows: int, columns: int) -> RowBlocks:
        """Divide a contiguous matrix; consecutive narrow rows are read as one wide row."""
        fold = 1
        while columns * fold < GROUP and rows % (2 * fold) == 0 and rows >= 2 * fold * _MIN_ROWS:
            fold *= 2
        return RowBlocks(rows // fold, columns * fold, fold)

    @property
    def rows_per_block(self) -> int:
        """Rows of every block but the last."""
        return max(_MIN_ROWS, -(-self.rows // _MAX_BLOCKS))

    @property
    def count(self) -> int:
        """Number of blocks."""
        return -(-self.rows // self.rows_per_block)

    @property
    def sums_bytes(self) -> int:
        """Bytes of the sums of all blocks [count, columns]."""
        return _DOUBLE_BYTES * self.count * self.columns

    def total_part(
        self, sums: Place, total: Slot, device: DeviceDescription, columns: range | None = None
    ) -> LoopPart:
        """Return total = sum of the blocks' sums, in order.

        columns: those of the matrix that are added, default all.
        """
        stride = self.columns // self.fold
        added = range(stride) if columns is None else columns
        arguments = BlockTotals(
            columns=len(added),
            blocks=self.count * self.fold,
            first=added.start,
            stride=stride,
            sums=sums,
            total=total,
        )
        if device.family == CUDA:
            return LoopPart(block_totals_block, arguments, -(-len(added) // _THREADS))
        tasks = device.tasks_for_elements(arguments.blocks * len(added))
        return LoopPart(block_totals_loop, arguments, tasks)


class BlockedRows(Arguments):
    """Rows of `columns` elements, in blocks, and the sums of each block."""

    rows: Integer
    columns: Integer
    blocks: Integer
    rows_per_block: Integer
    sums: Float64s


class SummedColumns(BlockedRows):
    """Matrix [rows, columns] and the sums of its blocks [blocks, columns].

    parts: parts of a row, each of them one piece of work in every block.
    """

    parts: Integer
    matrix: Floats


@inlined
def clear_sums(sums: Any, at: int, count: int) -> None:
    """Write 0 to `count` sums from `at` on."""
    for j, width in vectors(at, at + count):
        store_lanes(sums, j, wide_lanes(lanes(0.0)), width)


@inlined
def four_rows(matrix: Any, place: int, columns: int, count: int) -> Any:
    """Return the float32 sum of a vector in each of four rows."""
    low = load_lanes(matrix, place, count)
    low = add_lanes(low, load_lanes(matrix, place + columns, count))
    high = load_lanes(matrix, place + 2 * columns, count)
    high = add_lanes(high, load_lanes(matrix, place + 3 * columns, count))
    return add_lanes(low, high)


@inlined
def add_rows(call: BlockedRows, matrix: Any, first: int, last: int, c: int, at: int) -> None:
    """Add rows first to last - 1 of a matrix, four at a time, to sums from `at` on.

    Of each row the columns of the group that begins at column c are added.
    """
    columns, sums = call.columns, call.sums
    fours = first + (last - first) // 4 * 4
    if c + GROUP <= columns:
        x, y = load_lanes(sums, at, LANES), load_lanes(sums, at + LANES, LANES)
        z, w = load_lanes(sums, at + 2 * LANES, LANES), load_lanes(sums, at + 3 * LANES, LANES)
        for row in range(first, fours, 4):
            place = row * columns + c
            x = add_lanes(x, four_rows(matrix, place, columns, LANES))
            y = add_lanes(y, four_rows(matrix, place + LANES, columns, LANES))
            z = add_lanes(z, four_rows(matrix, place + 2 * LANES, columns, LANES))
            w = add_lanes(w, four_rows(matrix, place + 3 * LANES, columns, LANES))
        for row in range(fours, last):
            place = row * columns + c
            x = add_lanes(x, load_lanes(matrix, place, LANES))
            y = add_lanes(y, load_lanes(matrix, place + LANES, LANES))
            z = add_lanes(z, load_lanes(matrix, place + 2 * LANES, LANES))
            w = add_lanes(w, load_lanes(matrix, place + 3 * LANES, LANES))
        store_lanes(sums, at, x, LANES)
        store_lanes(sums, at + LANES, y, LANES)
        store_lanes(sums, at + 2 * LANES, z, LANES)
        store_lanes(sums, at + 3 * LANES, w, LANES)
    else:
        for j in range(0, columns - c, LANES):
            count, total = columns - c - j, load_lanes(sums, at + j, columns - c - j)
            for row in range(first, fours, 4):
                place = row * columns + c + j
                total = add_lanes(total, four_rows(matrix, place, columns, count))
            for row in range(fours, last):
                total = add_lanes(total, load_lanes(matrix, row * columns + c + j, count))
            store_lanes(sums, at + j, total, count)


@compact
def column_sums_loop(call: SummedColumns) -> None:
    """sums[block, column] = sum of the block's rows, in order."""
    near = near_rows(call.columns)
    for piece in rows_of_task(call.blocks * call.parts):
        block, start = piece // call.parts, piece % call.parts * _PART
        width, to = min(_PART, call.columns - start), block * call.columns
        clear_sums(call.sums, to + start, width)
        beyond = min((block + 1) * call.rows_per_block, call.rows)
        for first in range(block * call.rows_per_block, beyond, near):
            last = min(first + near, beyond)
            for c in range(start, start + width, GROUP):
                add_rows(call, call.matrix, first, last, c, to + c)


@block_of(_THREADS)
def column_sums_block(call: SummedColumns) -> None:
    """Compute `column_sums_loop`: a task is `_THREADS` columns of one of its blocks of rows."""
    task, _ = current_task()
    rows, part = task // call.parts, task % call.parts
    beyond = min((rows + 1) * call.rows_per_block, call.rows)
    first = rows * call.rows_per_block
    fours = first + (beyond - first) // 4 * 4
    for t in threads(_THREADS):
        c = part * _THREADS + t
        if c < call.columns:
            total = 0.0
            for row in range(first, fours, 4):
                at = row * call.columns + c
                low = call.matrix[at] + call.matrix[at + call.columns]
                at += 2 * call.columns
                total += low + (call.matrix[at] + call.matrix[at + call.columns])
            for row in range(fours, beyond):
                total += call.matrix[row * call.columns + c]
            call.sums[rows * call.columns + c] = total


class BlockTotals(Arguments):
    """Sums of blocks, `stride` each, and the total [columns] of those from `first` on."""

    columns: Integer
    blocks: Integer
    first: Integer
    stride: Integer
    sums: Float64s
    total: Float32s


@compact
def block_totals_loop(call: BlockTotals) -> None:
    """total[c] = sum of the blocks' sums, in order."""
    begin, end = share(call.columns)
    for c, count in vectors(begin, end):
        at = call.first + c
        total = load_lanes(call.sums, at, count)
        for block in range(1, call.blocks):
            total = add_lanes(total, load_lanes(call.sums, block * call.stride + at, count))
        store_lanes(call.total, c, total, count)


@block_of(_THREADS)
def block_totals_block(call: BlockTotals) -> None:
    """Compute `block_totals_loop`."""
    task, _ = current_task()
    for t in threads(_THREADS):
        c = task * _THREADS + t
        if c < call.columns:
            total = call.sums[call.first + c]
            for rows in range(1, call.blocks):
                total += call.sums[rows * call.stride + call.first + c]
            call.total[c] = total


def column_sum_part(
    matrix: Slot, total: Slot, shape: Shape, dtype: str, device: DeviceDescription
) -> KernelPart:
    """Return total = sum over the rows of a contiguous matrix of `dtype`, float32 or bfloat16."""
    rows, columns = shape
    blocks = RowBlocks.of_matrix(rows, columns)
    is_card = device.family == CUDA
    parts = -(-blocks.columns // (_THREADS if is_card else _PART))
    arguments = SummedColumns(
        rows=blocks.rows,
        columns=blocks.columns,
        blocks=blocks.count,
        rows_per_block=blocks.rows_per_block,
        sums=Scratch(),
        parts=parts,
        matrix=matrix,
    )
    loop = column_sums_block if is_card else column_sums_loop
    elements = blocks.rows * blocks.columns
    tasks = blocks.count * parts if is_card else device.tasks_for_elements(elements)
    loop = loop.bfloat16 if dtype == BFLOAT16 else loop
    first = LoopPart(loop, arguments, tasks, blocks.sums_bytes)
    return JoinedPart((first, blocks.total_part(Scratch(), total, device)))
