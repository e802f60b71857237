"""Code of the intrinsics that are declared in `products`: tiles that cover any matrix."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mxrun.codegen import products
from mxrun.codegen.llvm_target import separate_function
from mxrun.codegen.processor import processor
from mxrun.codegen.sequential.intrinsic import Intrinsic, typed
from mxrun.codegen.sequential.kinds import FLOAT32, FLOATS, INT64, Kind, Pointer
from mxrun.codegen.sequential.lanes import first_lanes, load_vector, store_vector
from mxrun.codegen.sequential.llvm_control import WORD, counted_loop
from mxrun.codegen.sequential.register_tile import (
    Step,
    TileFactors,
    multiply_floats,
    multiply_pairs,
    tile_sums,
    vector_at,
)
from mxrun.codegen.target import is_card
from mxrun.codegen.vectors import LANES

_POINTER = Pointer(FLOAT32)
# Rows of the tiles, largest first. Tiles of other heights and widths made no product faster, but
# the code takes a third longer to compile. On cards addresses take most of the registers.
_ROWS, _ROWS_OF_CARDS = (6, 2, 1), (4, 1)
# Vectors in a row of a tile, of which the last one may have fewer columns: with 32 registers of 512
# bits, six rows of four sums leave room for a row of the right factor; otherwise a vector takes
# several registers.
_WIDE, _NARROW, _WIDTHS_OF_CARDS = (4, 2, 1), (1, 1), (2, 1)


def _widths() -> tuple[int, ...]:
    if is_card():
        return _WIDTHS_OF_CARDS
    return _WIDE if processor().has("avx512f") else _NARROW


def _function(name: str, step: Step) -> Intrinsic:
    """Return an intrinsic that calls a function, which is generated once per module."""
    kinds: list[Kind | Pointer] = [
        *(_POINTER, INT64, INT64),
        *(_POINTER, INT64, INT64, INT64),
        *(_POINTER, INT64, INT64),
        *[INT64] * 3,
        *(_POINTER, INT64, INT64, INT64),
    ]

    def call(builder: Any, *arguments: Any) -> None:
        module = builder.module
        function = module.globals.get(name)
        if function is None:
            codes = [each.code for each in kinds]
            function = separate_function(module, name, ir.VoidType(), codes)
            _generate(function, step)
        builder.call(function, arguments)

    return typed(None, *kinds)(call)


def _generate(function: Any, step: Step) -> None:
    """Generate the loops over tiles: columns outside, so that these of the right stay in cache."""
    builder = ir.IRBuilder(function.append_basic_block("start"))
    columns = function.args[11]
    first: Any = WORD(0)
    *widths, last = _widths()
    for vectors in widths:
        width = WORD(vectors * LANES)
        count = builder.sdiv(builder.sub(columns, first), width)
        with counted_loop(builder, count) as index:
            column = builder.add(first, builder.mul(index, width))
            _rows(builder, function, column, vectors, step, None)
        first = builder.add(first, builder.mul(count, width))
    rest = builder.add(builder.sub(columns, first), WORD(LANES - 1))
    with counted_loop(builder, builder.sdiv(rest, WORD(LANES))) as index:
        column = builder.add(first, builder.mul(index, WORD(LANES)))
        mask = first_lanes(builder, builder.sub(columns, column), LANES)
        _rows(builder, function, column, last, step, mask)
    builder.ret_void()


def _rows(
    builder: Any, function: Any, column: Any, vectors: int, step: Step, mask: Any | None
) -> None:
    rows = function.args[10]
    first: Any = WORD(0)
    for height in _ROWS_OF_CARDS if is_card() else _ROWS:
        count = builder.sdiv(builder.sub(rows, first), WORD(height))
        with counted_loop(builder, count) as index:
            row = builder.add(first, builder.mul(index, WORD(height)))
            _tile(builder, function, row, column, height, vectors, step, mask)
        first = builder.add(first, builder.mul(count, WORD(height)))


def _tile(
    builder: Any,
    function: Any,
    row: Any,
    column: Any,
    height: int,
    vectors: int,
    step: Step,
    mask: Any | None,
) -> None:
    """Generate one tile: its sums, to which others may be added, are written."""
    output, to, output_step, left, left_at, row_step, inner_step = function.args[:7]
    right, right_at, right_step, _, _, inner = function.args[7:13]
    begin, begin_at, begin_step, is_begun = function.args[13:]
    factors = TileFactors(
        left=builder.gep(left, [builder.add(left_at, builder.mul(row, row_step))]),
        row_bytes=builder.mul(row_step, WORD(4)),
        inner_bytes=builder.mul(inner_step, WORD(4)),
        element=FLOAT32.code,
        right=builder.gep(right, [builder.add(right_at, column)]),
        right_step=right_step,
        inner=inner,
        mask=mask,
    )

    def places(pointer: Any, at: Any, distance: Any) -> list[Any]:
        first = builder.add(builder.add(at, builder.mul(row, distance)), column)
        starts = [builder.add(first, builder.mul(WORD(i), distance)) for i in range(height)]
        return [
            vector_at(builder, pointer, builder.add(start, WORD(j)))
            for start in starts
            for j in range(0, vectors * LANES, LANES)
        ]

    zero = ir.Constant(FLOATS.code, None)
    products = tile_sums(builder, factors, height, [zero] * height * vectors, step)
    # Without a beginning nothing is loaded, and 0 is added.
    count = builder.sub(function.args[11], column)
    begun = builder.icmp_signed("!=", is_begun, WORD(0))
    read = first_lanes(builder, builder.select(begun, count, WORD(0)), LANES)
    given = [load_vector(builder, each, read) for each in places(begin, begin_at, begin_step)]
    sums = [builder.fadd(*each) for each in zip(given, products, strict=True)]
    for target, total in zip(places(output, to, output_step), sums, strict=True):
        store_vector(builder, total, target, mask)


PRODUCTS: dict[Any, Intrinsic] = {
    products.multiply_block: _function("multiply_block", multiply_floats),
    products.multiply_pairs: _function("multiply_pairs", multiply_pairs),
}
