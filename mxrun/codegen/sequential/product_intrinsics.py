"""Code of the intrinsics that are declared in `products`: tiles of sums in vector registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from mxrun.codegen import products
from mxrun.codegen.llvm_target import call_function
from mxrun.codegen.sequential.intrinsic import Intrinsic, typed
from mxrun.codegen.sequential.kinds import FLOAT32, FLOATS, INT64, Kind, Pointer
from mxrun.codegen.sequential.llvm_column import broadcast
from mxrun.codegen.sequential.llvm_control import WORD, counted_loop
from mxrun.codegen.vectors import LANES

_POINTER = Pointer(FLOAT32)
_FLOAT = FLOAT32.code
# Rows of the tiles, largest first. Tiles of other heights and widths made no product faster, but
# the code takes a third longer to compile.
_ROWS = (6, 2)
# Vectors in a row of a tile: with 32 registers of 512 bits, six rows of four sums leave room for a
# row of the right factor; otherwise a vector takes several registers.
_WIDE, _NARROW = (4, 2, 1), (1,)

# (builder, sums, a broadcast element, a vector) -> the sums with the product added.
_Step = Callable[[Any, Any, Any, Any], Any]


def _multiply(builder: Any, total: Any, element: Any, vector: Any) -> Any:
    return call_function(builder, f"llvm.fma.v{LANES}f32", FLOATS.code, [element, vector, total])


def multiply_pairs(builder: Any, total: Any, element: Any, vector: Any) -> Any:
    """Add to float32 sums the products of bfloat16 pairs, given as float32 vectors."""
    halves = ir.VectorType(_BFloat16(), 2 * LANES)
    given = [total, *(builder.bitcast(each, halves) for each in (element, vector))]
    return call_function(builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS.code, given)


class _BFloat16(ir.Type):  # type: ignore[misc]
    """LLVM's type bfloat, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


def _widths() -> tuple[int, ...]:
    return _WIDE if llvm.get_host_cpu_features().get("avx512f") else _NARROW


def _function(name: str, step: _Step) -> Intrinsic:
    """Return an intrinsic that calls a function, which is generated once per module."""
    kinds: list[Kind | Pointer] = [
        *(_POINTER, INT64, INT64),
        *(_POINTER, INT64, INT64, INT64),
        *(_POINTER, INT64, INT64),
        *[INT64] * 4,
    ]

    def call(builder: Any, *arguments: Any) -> None:
        module = builder.module
        function = module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(ir.VoidType(), [each.code for each in kinds])
            function = ir.Function(module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            _generate(function, step)
        builder.call(function, arguments)

    return typed(None, *kinds)(call)


def _generate(function: Any, step: _Step) -> None:
    """Generate the loops over tiles: columns outside, so that these of the right stay in cache."""
    builder = ir.IRBuilder(function.append_basic_block("start"))
    columns = function.args[11]
    first: Any = WORD(0)
    for vectors in _widths():
        width = WORD(vectors * LANES)
        count = builder.sdiv(builder.sub(columns, first), width)
        with counted_loop(builder, count) as index:
            _rows(builder, function, builder.add(first, builder.mul(index, width)), vectors, step)
        first = builder.add(first, builder.mul(count, width))
    builder.ret_void()


def _rows(builder: Any, function: Any, column: Any, vectors: int, step: _Step) -> None:
    rows = function.args[10]
    first: Any = WORD(0)
    for height in _ROWS:
        count = builder.sdiv(builder.sub(rows, first), WORD(height))
        with counted_loop(builder, count) as index:
            row = builder.add(first, builder.mul(index, WORD(height)))
            _tile(builder, function, row, column, height, vectors, step)
        first = builder.add(first, builder.mul(count, WORD(height)))


def _tile(
    builder: Any, function: Any, row: Any, column: Any, height: int, vectors: int, step: _Step
) -> None:
    """Generate the sums of one tile."""
    output, to, output_step, left, left_at, row_step, inner_step = function.args[:7]
    right, right_at, right_step, _, _, inner, is_added = function.args[7:]
    kind = FLOATS.code

    def place(pointer: Any, position: Any) -> Any:
        return builder.bitcast(builder.gep(pointer, [position]), kind.as_pointer())

    starts = [
        builder.add(left_at, builder.mul(builder.add(row, WORD(i)), row_step))
        for i in range(height)
    ]
    lefts = [builder.gep(left, [start]) for start in starts]
    rights = builder.gep(right, [builder.add(right_at, column)])
    first = builder.add(builder.add(to, builder.mul(row, output_step)), column)
    targets = [
        place(output, builder.add(first, builder.add(builder.mul(WORD(i), output_step), WORD(j))))
        for i in range(height)
        for j in range(0, vectors * LANES, LANES)
    ]
    zero = ir.Constant(kind, None)
    before, body, after = (builder.append_basic_block(name) for name in ("sum", "terms", "write"))
    builder.branch(before)
    builder.position_at_end(before)
    builder.cbranch(builder.icmp_signed(">", inner, WORD(0)), body, after)
    builder.position_at_end(body)
    index = builder.phi(WORD)
    index.add_incoming(WORD(0), before)
    totals = [builder.phi(kind) for _ in targets]
    for total in totals:
        total.add_incoming(zero, before)
    at = builder.mul(index, right_step)
    vector_list = [
        builder.load(place(rights, builder.add(at, WORD(j * LANES))), align=4)
        for j in range(vectors)
    ]
    offset, results = builder.mul(index, inner_step), []
    for i in range(height):
        element = broadcast(builder, builder.load(builder.gep(lefts[i], [offset]), align=4), LANES)
        for j in range(vectors):
            results.append(step(builder, totals[i * vectors + j], element, vector_list[j]))
    following = builder.add(index, WORD(1), flags=["nsw"])
    index.add_incoming(following, body)
    for total, result in zip(totals, results, strict=True):
        total.add_incoming(result, body)
    builder.cbranch(builder.icmp_signed("<", following, inner), body, after)
    builder.position_at_end(after)
    sums = []
    for result in results:
        found = builder.phi(kind)
        found.add_incoming(zero, before)
        found.add_incoming(result, body)
        sums.append(found)
    adds = builder.icmp_signed("!=", is_added, WORD(0))
    with builder.if_else(adds) as (added, written):
        with added:
            for target, total in zip(targets, sums, strict=True):
                builder.store(builder.fadd(builder.load(target, align=4), total), target, align=4)
        with written:
            for target, total in zip(targets, sums, strict=True):
                builder.store(total, target, align=4)


PRODUCTS: dict[Any, Intrinsic] = {
    products.multiply_block: _function("multiply_block", _multiply),
    products.multiply_pairs: _function("multiply_pairs", multiply_pairs),
}
