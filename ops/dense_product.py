"""Products of matrices in compiled loops over tiles of the output.

For each block of the inner axis, a panel of the right factor is packed once for all rows of a tile,
or read where it is. The terms of a block are added in their order, and then the blocks, so that
long sums lose few digits and the bits depend on the shapes alone.
"""

from __future__ import annotations

from mxrun.base.blocked import PANEL, panels_of
from mxrun.base.dataclass import dataclass
from mxrun.base.device import CUDA, DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, Layout, TensorSpec
from mxrun.codegen.arguments import Float32s, Floats, Integer, Real
from mxrun.codegen.intrinsics import current_task, worker
from mxrun.codegen.jit import NativeFunction, compact, inlined
from mxrun.codegen.vectors import LANES, lanes, transpose_lanes
from mxrun.operator.gradient_parts import GradientParts
from mxrun.operator.kernel import BackwardRequest
from mxrun.operator.native_kernel import LoopPart, Scratch, Slot
from mxrun.ops.block_product import TILE, BlockProduct, product_block
from mxrun.ops.product_blocks import (
    MatrixRows,
    ProductScratch,
    multiplies_pairs,
    multiply,
    pack_left,
    pack_panels,
    pack_right,
    paired,
    rounded_up,
    write_row,
)

# Terms of a block, an even number: a panel of the right factor takes 64 KiB then.
INNER = 256
# Elements between terms that few sets of a cache hold.
_ALIASED = 1024
# Elements of a page of memory, and pages that a processor knows at once.
_PAGE = 1024
_MOST_PAGES = 255
# Rows of a tile at most, and sizes below which packing and short rows cost too much.
_MOST_ROWS, _LEAST_ROWS, _LEAST_COLUMNS = 384, 64, 32
# How many tiles there are for most threads, and the work that each must have.
_TILES = ((2, 500_000), (8, 6_000_000), (16, 64_000_000))


class DenseProduct(ProductScratch):
    """Arguments of `dense_product_loop`: output = factor * left x right + bias, for each stack.

    output [count, rows, columns]; left [count, rows, inner] or, if it is turned, [count, inner,
    rows]; right [count, inner, columns] or, if it is turned, [count, columns, inner]. Matrices are
    `_stack` elements apart, and their rows `_row`. left_words, right_words: the same memory, read
    where it is in words that are terms or pairs of them; None if blocks are packed. panel_words: of
    a panel, if right is in panels of its rows; otherwise 0. bias [columns]: None if there is none.
    total: the output if it is float32, else None. is_kept: whether sums of blocks stay there, and
    not in scratch space. is_added: whether the product is added to the output. A tile has
    `tile_rows` rows and `tile_columns` columns, which are multiples of 16. In scratch space are a
    panel and, from these words on, rows to transpose, packed rows of left, and sums.
    """

    count: Integer
    rows: Integer
    columns: Integer
    inner: Integer
    left: Floats
    left_words: Float32s
    left_stack: Integer
    left_row: Integer
    is_left_turned: Integer
    right: Floats
    right_words: Float32s
    right_stack: Integer
    right_row: Integer
    is_right_turned: Integer
    panel_words: Integer
    bias: Float32s
    factor: Real
    output: Floats
    total: Float32s
    is_kept: Integer
    output_stack: Integer
    output_row: Integer
    is_added: Integer
    tile_rows: Integer
    tile_columns: Integer
    stage_at: Integer
    rows_at: Integer
    sums_at: Integer


@inlined
def turn_panel(call: DenseProduct, to: int, at: int, columns: int, words: int) -> None:
    """Transpose a block of a turned right factor, from word `at` on, to a panel."""
    row = paired(call, call.right_row)
    for i in range(0, columns, LANES):
        for j in range(0, words, LANES):
            transpose_lanes(
                *(call.right_words, at + i * row + j, row, columns - i, words - j),
                *(call.scratch, to + j * PANEL + i, PANEL),
            )


@inlined
def write_tile(call: DenseProduct, sums: int, at: int, rows: int, columns: int) -> None:
    """Write the sums of a tile times the factor."""
    factor = lanes(call.factor)
    for i in range(rows):
        place, to = sums + i * call.tile_columns, at + i * call.output_row
        if call.total is None:
            write_row(call.output, to, call.scratch, place, columns, factor, call.is_added)
        else:
            write_row(call.total, to, call.scratch, place, columns, factor, call.is_added)


@compact
def dense_product_loop(call: DenseProduct) -> None:
    """Compute the task's tiles; tiles of the same columns follow each other."""
    task, tasks = current_task()
    high, wide = call.tile_rows, call.tile_columns
    down, across = (call.rows + high - 1) // high, (call.columns + wide - 1) // wide
    panel = worker() * call.words_per_worker
    stage, packed = panel + call.stage_at, panel + call.rows_at
    tiles = call.count * across * down
    for tile in range(task * tiles // tasks, (task + 1) * tiles // tasks):
        stack, row = tile // down // across, tile % down * high
        column = tile // down % across * wide
        rows, columns = min(call.rows - row, high), min(call.columns - column, wide)
        sums, to, step = call.scratch, panel + call.sums_at, wide
        if call.is_kept:
            sums, step = call.total, call.output_row
            to = stack * call.output_stack + row * step + column
        for first in range(0, call.inner, INNER):
            terms = min(call.inner - first, INNER)
            words = paired(call, terms)
            left, at, row_step, inner_step = call.scratch, packed, 1, high
            begin = stack * call.left_stack
            if call.is_left_turned:
                begin += first * call.left_row + row
                if call.left_words is None:
                    pack_right(
                        call, at, high, MatrixRows(call.left, begin, call.left_row, terms, rows)
                    )
                else:
                    left, at, inner_step = call.left_words, begin, call.left_row
            else:
                begin += row * call.left_row + first
                row_step, inner_step = paired(call, rounded_up(terms, LANES)), 1
                if call.left_words is None:
                    pack_left(call, at, MatrixRows(call.left, begin, call.left_row, rows, terms))
                else:
                    left, at = call.left_words, paired(call, begin)
                    row_step = paired(call, call.left_row)
            start, start_at, start_step = sums, to, step
            is_begun = 1 if first > 0 else 0
            if first == 0 and call.bias is not None:
                start, start_at, start_step, is_begun = call.bias, column, 0, 1
            for j in range(0, columns, PANEL):
                width = min(columns - j, PANEL)
                right, right_at, right_step = call.scratch, panel, PANEL
                begin = stack * call.right_stack
                if call.panel_words > 0:
                    right, right_at = call.right_words, paired(call, first) * PANEL
                    right_at += (column + j) // PANEL * call.panel_words
                elif call.is_right_turned:
                    begin += (column + j) * call.right_row + first
                    if call.right_words is None:
                        turned = MatrixRows(call.right, begin, call.right_row, width, terms)
                        pack_panels(call, panel, stage, turned)
                    else:
                        turn_panel(call, panel, paired(call, begin), width, words)
                else:
                    begin += first * call.right_row + column + j
                    if call.right_words is None:
                        plain = MatrixRows(call.right, begin, call.right_row, terms, width)
                        pack_right(call, panel, PANEL, plain)
                    else:
                        right, right_at, right_step = call.right_words, begin, call.right_row
                multiply(
                    call,
                    *(sums, to + j, step, left, at, row_step, inner_step),
                    *(right, right_at, right_step, rows, width, words),
                    *(start, start_at + j, start_step, is_begun),
                )
        if not call.is_kept:
            at = stack * call.output_stack + row * call.output_row + column
            write_tile(call, to, at, rows, columns)


@dataclass(frozen=True)
class StoredMatrices:
    """Matrices in a tensor as they are stored: [rows, columns], or [count, rows, columns].

    stack, row: elements between matrices and between rows; 0 if there are no gaps.
    """

    spec: TensorSpec
    slot: Slot
    is_turned: bool = False
    stack: int = 0
    row: int = 0

    @property
    def count(self) -> int:
        """Number of matrices."""
        return self.spec.shape[0] if len(self.spec.shape) > 2 else 1

    @property
    def steps(self) -> tuple[int, int]:
        """Elements between matrices, and between rows."""
        rows, columns = self.spec.shape[-2:]
        row = self.row or columns
        return self.stack or rows * row, row


@dataclass(frozen=True)
class _Form:
    """How a product is computed: on pairs or not, and which factors are read where they are."""

    is_paired: bool
    reads_left: bool
    reads_right: bool

    @staticmethod
    def of(
        left: StoredMatrices, right: StoredMatrices, inner: int, device: DeviceDescription
    ) -> _Form:
        is_low = left.spec.dtype == BFLOAT16
        if not is_low:
            return _Form(False, _reads_left(left, inner), _reads_right(left, right, inner))
        is_paired = multiplies_pairs(device)
        even = [
            is_paired and not (inner % 2 or any(step % 2 for step in each.steps))
            for each in (left, right)
        ]
        reads_right = (even[1] and right.is_turned) or panels_of(right.spec) is not None
        return _Form(is_paired, even[0] and not left.is_turned, reads_right)


def _reads_left(left: StoredMatrices, inner: int) -> bool:
    """Return whether float32 is read where it is: not if few sets of a cache hold all terms."""
    return not left.is_turned or inner == 1 or left.steps[1] % _ALIASED != 0


def _reads_right(left: StoredMatrices, right: StoredMatrices, inner: int) -> bool:
    """Return whether float32 is read where it is, or transposed from there.

    Terms that lie on more pages than the processor knows at once are packed.
    """
    if right.is_turned:
        return True
    rows = (right, left) if left.is_turned else (right,)
    pages = sum(min(each.steps[1] / _PAGE, 1) for each in rows) * min(inner, INNER)
    return pages <= _MOST_PAGES


@dataclass(frozen=True)
class MatrixProduct:
    """output = factor * left x right + bias, or that added to the output; matrices, or stacks.

    The factors have one dtype, float32 or bfloat16; sums are float32. bias: float32, one for each
    column, and only beside a factor of 1.
    """

    left: StoredMatrices
    right: StoredMatrices
    output: StoredMatrices
    bias: Slot | None = None
    factor: float = 1.0
    is_added: bool = False

    @property
    def inner(self) -> int:
        """Number of terms of a sum."""
        return self.left.spec.shape[-2 if self.left.is_turned else -1]

    @property
    def flops(self) -> int:
        """Two per multiply-add."""
        return 2 * self.output.spec.elements * self.inner

    def add_to(
        self, parts: GradientParts, name: str, request: BackwardRequest, layout: Layout = PLAIN
    ) -> None:
        """Add the loop to the parts of a backward kernel.

        layout: in which the factors are matrices; the output is plain.
        """
        for stored, own in ((self.left, layout), (self.right, layout), (self.output, PLAIN)):
            parts.use(stored.slot, own, stored.spec.dtype)
        parts.add(name, dense_product(self, request.device))


def dense_product_serves(dtype: str, device: DeviceDescription) -> bool:
    """Return whether products of factors of a dtype are as fast as a library's.

    Processors that multiply tiles of bfloat16 are faster at that than at pairs.
    """
    is_paired = multiplies_pairs(device) and "amx" not in device.instruction_set
    return dtype == FLOAT32 or (dtype == BFLOAT16 and (is_paired or device.family == CUDA))


def dense_product(product: MatrixProduct, device: DeviceDescription) -> LoopPart:
    """Return a product as a loop over tiles; on a GPU each is a block's."""
    if device.family == CUDA:
        return _block_product(product)
    left, right, output, inner = product.left, product.right, product.output, product.inner
    count, (rows, columns) = output.count, output.spec.shape[-2:]
    form = _Form.of(left, right, inner, device)
    wanted = max(min(product.flops // least, most) for most, least in _TILES)
    high, wide = tile_sizes(rows, columns, device.most_tasks(wanted // count), left.is_turned)
    panels, pair = panels_of(right.spec), 2 if form.is_paired else 1
    if panels:
        wide = -(-wide // PANEL) * PANEL
    is_float32 = output.spec.dtype == FLOAT32
    is_kept = is_float32 and product.factor == 1 and not product.is_added
    terms = min(-(-inner // LANES) * LANES, INNER)
    is_packed = not panels and (right.is_turned or not form.reads_right)
    stage = terms * PANEL if is_packed else 0
    packed = stage + (0 if form.reads_right else terms * LANES)
    sums = packed + (0 if form.reads_left else terms * high)
    words = sums + (0 if is_kept else min(high, rows) * wide)
    left_stack, left_row = left.steps
    right_stack, right_row = right.steps
    output_stack, output_row = output.steps
    arguments = DenseProduct(
        count=count,
        rows=rows,
        columns=columns,
        inner=inner,
        left=left.slot,
        left_words=left.slot if form.reads_left else None,
        left_stack=left_stack,
        left_row=left_row,
        is_left_turned=int(left.is_turned),
        right=right.slot,
        right_words=right.slot if form.reads_right else None,
        right_stack=right_stack,
        right_row=right_row,
        is_right_turned=int(right.is_turned),
        panel_words=panels.strides[0] // pair if panels else 0,
        bias=product.bias,
        factor=product.factor,
        output=output.slot,
        total=output.slot if is_float32 else None,
        is_kept=int(is_kept),
        output_stack=output_stack,
        output_row=output_row,
        is_added=int(product.is_added),
        tile_rows=high,
        tile_columns=wide,
        stage_at=stage,
        rows_at=packed,
        sums_at=sums,
        scratch=Scratch() if words else None,
        halves=Scratch() if words else None,
        words_per_worker=words,
        is_paired=int(form.is_paired),
    )
    loop: NativeFunction = dense_product_loop.with_constants(is_paired=int(form.is_paired))
    if left.spec.dtype == BFLOAT16:
        loop = loop.bfloat16
    tiles = count * -(-rows // high) * -(-columns // wide)
    tasks = min(device.tasks_for_flops(product.flops), tiles)
    return LoopPart(loop, arguments, tasks, 4 * words * device.workers(tasks))


def _block_product(product: MatrixProduct) -> LoopPart:
    """Return a product as a block kernel."""
    left, right, output = product.left, product.right, product.output
    rows, columns = output.spec.shape[-2:]
    left_row, left_term = _steps(left)
    right_term, right_column = _steps(right)
    output_stack, output_row = output.steps
    arguments = BlockProduct(
        rows=rows,
        columns=columns,
        inner=product.inner,
        block_terms=INNER,
        left=left.slot,
        left_stack=left.steps[0],
        left_row=left_row,
        left_term=left_term,
        right=right.slot,
        right_stack=right.steps[0],
        right_term=right_term,
        right_column=right_column,
        bias=product.bias,
        factor=product.factor,
        output=output.slot,
        total=output.slot if output.spec.dtype == FLOAT32 else None,
        output_stack=output_stack,
        output_row=output_row,
        is_added=int(product.is_added),
    )
    kernel = product_block.bfloat16 if left.spec.dtype == BFLOAT16 else product_block
    tiles = output.count * -(-rows // TILE) * -(-columns // TILE)
    return LoopPart(kernel, arguments, tiles)


def _steps(matrices: StoredMatrices) -> tuple[int, int]:
    """Return the elements between rows and between columns of the matrices as they are read."""
    row = matrices.steps[1]
    return (1, row) if matrices.is_turned else (row, 1)


def tile_sizes(rows: int, columns: int, tiles: int, is_turned: bool) -> tuple[int, int]:
    """Return the rows and columns of a tile, so that there are some `tiles` where they pay.

    is_turned: whether the left factor is, whose blocks are then read faster by wide tiles. Few
    parts are a power of two, which the usual numbers of threads share equally.
    """
    down = -(-rows // _MOST_ROWS)
    across = -(-columns // (_MOST_ROWS if is_turned else 2 * PANEL))
    if down * across < _TILES[-1][0]:
        down, across = (1 << (parts - 1).bit_length() for parts in (down, across))
    while down * across < tiles:
        high, wide = rows / down, columns / across
        if wide > _LEAST_COLUMNS and (wide >= high or high <= _LEAST_ROWS):
            across *= 2
        elif high > _LEAST_ROWS:
            down *= 2
        else:
            break
    unit = LANES if columns / across <= PANEL else 2 * LANES
    return -(-rows // down // LANES) * LANES, -(-columns // across // unit) * unit
