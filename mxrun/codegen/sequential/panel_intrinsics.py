"""Code of the intrinsics for products of a few rows with a panel of a matrix: one tile.

There is a tile for each number of rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir

from mxrun.codegen import vectors
from mxrun.codegen.llvm_target import separate_function
from mxrun.codegen.sequential.arithmetic import Untyped
from mxrun.codegen.sequential.intrinsic import Intrinsic, number, operand_of
from mxrun.codegen.sequential.kinds import (
    BFLOAT16,
    FLOAT32,
    INT64,
    NOTHING,
    Operand,
    Pointer,
)
from mxrun.codegen.sequential.lanes import first_lanes, load_vector, store_vector
from mxrun.codegen.sequential.llvm_control import WORD
from mxrun.codegen.sequential.register_tile import (
    TileFactors,
    multiply_floats,
    multiply_pairs,
    tile_sums,
    vector_at,
)
from mxrun.codegen.vectors import LANES, PANEL_COLUMNS, PANEL_ROWS

_VECTORS = PANEL_COLUMNS // LANES
_BYTE = ir.IntType(8).as_pointer()


def _multiply(
    are_pairs: bool,
    builder: Any,
    output: Operand,
    at: Operand,
    stride: Operand,
    rows: Operand,
    left: Operand,
    position: Operand,
    step: Operand,
    inner: Operand,
    panel: Operand,
    start: Operand,
    columns: Operand,
) -> Operand:
    """Call a function, which is generated once per module."""
    kind = number(left).kind
    elements = (BFLOAT16,) if are_pairs else (FLOAT32, BFLOAT16)
    if not isinstance(kind, Pointer) or kind.element not in elements:
        raise Untyped(f"there are no rows in the memory of {kind}")
    floats = Pointer(FLOAT32)
    result = builder.gep(operand_of(builder, output, floats), [operand_of(builder, at, INT64)])
    matrix = builder.gep(operand_of(builder, panel, floats), [operand_of(builder, start, INT64)])
    first = builder.gep(number(left).code, [operand_of(builder, position, INT64)])
    sizes = [operand_of(builder, each, INT64) for each in (stride, rows, step, inner, columns)]
    distance, count, row_step, terms, width = sizes
    # A pair of bfloat16 elements is read as one float32.
    element = FLOAT32.code if are_pairs else kind.element.code
    places = [builder.bitcast(first, _BYTE), matrix]
    row_bytes = builder.mul(row_step, WORD(_bytes(kind.element.code)))
    given = [result, *places, distance, count, row_bytes, terms, width]
    name = f"panel_{element}_{are_pairs:d}"
    function = builder.module.globals.get(name)
    if function is None:
        kinds = [each.type for each in given]
        function = separate_function(builder.module, name, ir.VoidType(), kinds)
        _generate(function, element, are_pairs)
    builder.call(function, given)
    return NOTHING


def _generate(function: Any, element: Any, are_pairs: bool) -> None:
    """Generate a switch over the number of rows, and a tile for each."""
    builder = ir.IRBuilder(function.append_basic_block())
    result, first, matrix, distance, count, row_bytes, terms, width = function.args
    factors = TileFactors(
        left=first,
        row_bytes=row_bytes,
        inner_bytes=WORD(_bytes(element)),
        element=element,
        right=matrix,
        right_step=WORD(PANEL_COLUMNS),
        inner=builder.lshr(terms, WORD(1)) if are_pairs else terms,
    )
    counts = [builder.sub(width, WORD(vector * LANES)) for vector in range(_VECTORS)]
    masks = [first_lanes(builder, each, LANES) for each in counts]
    after = function.append_basic_block("multiplied")
    choice = builder.switch(count, after)
    for height in range(1, PANEL_ROWS + 1):
        block = function.append_basic_block(f"rows{height}")
        choice.add_case(WORD(height), block)
        builder.position_at_end(block)
        _tile(builder, result, distance, factors, height, masks, are_pairs)
        builder.branch(after)
    builder.position_at_end(after)
    builder.ret_void()


def _bytes(element: Any) -> int:
    return 4 if element == FLOAT32.code else 2


def _tile(
    builder: Any,
    output: Any,
    stride: Any,
    factors: TileFactors,
    height: int,
    masks: list[Any],
    are_pairs: bool,
) -> None:
    """Generate the tile of `height` rows: its sums begin with the output's elements."""
    starts = [builder.gep(output, [builder.mul(stride, WORD(row))]) for row in range(height)]
    targets = [
        (vector_at(builder, start, WORD(vector * LANES)), masks[vector])
        for start in starts
        for vector in range(_VECTORS)
    ]
    sums = [load_vector(builder, place, mask) for place, mask in targets]
    step = multiply_pairs if are_pairs else multiply_floats
    totals = tile_sums(builder, factors, height, sums, step)
    for total, (place, mask) in zip(totals, targets, strict=True):
        store_vector(builder, total, place, mask)


PANELS: dict[Any, Intrinsic] = {
    vectors.multiply_panel: partial(_multiply, False),
    vectors.multiply_pair_panel: partial(_multiply, True),
}
