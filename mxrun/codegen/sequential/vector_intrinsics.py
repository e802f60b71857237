"""Code of the intrinsics that are declared in `vectors`, with LLVM vectors."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from mxrun.codegen import scalar_logarithm, vectors
from mxrun.codegen.llvm_bfloat16 import constant, rounded, widened
from mxrun.codegen.llvm_target import adds_and_multiplies_apart, call_function, multiply_add
from mxrun.codegen.scalar_float32 import BIASED, EXP
from mxrun.codegen.scalar_operations import float64_code
from mxrun.codegen.sequential.arithmetic import Untyped, converted
from mxrun.codegen.sequential.intrinsic import Intrinsic, number, operand_of, typed
from mxrun.codegen.sequential.kinds import (
    BFLOAT16,
    FLAGS,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT32,
    INT64,
    INTEGERS,
    NOTHING,
    UINT8,
    WIDE_FLOATS,
    Kind,
    Operand,
    Pointer,
    TypedValue,
)
from mxrun.codegen.sequential.llvm_column import (
    added_by_products,
    broadcast,
    first_lanes,
    joined,
    prefetch,
)
from mxrun.codegen.sequential.masked import load_lanes_of, store_lanes_of
from mxrun.codegen.vectors import LANES

_POINTER = Pointer(FLOAT32)
_INDEX = ir.IntType(32)
_WORD = ir.IntType(64)
_BYTES = ir.VectorType(ir.IntType(8), LANES)
_HALVES = ir.VectorType(ir.IntType(16), LANES)
_ALIGNED = _INDEX(1)
# 2^r for |r| <= 1/2.
_EXP2 = tuple(number * math.log(2) ** power for power, number in enumerate(EXP))


def _place(builder: Any, pointer: Any, position: Any, vector: Any) -> Any:
    """Return the address of a vector in memory."""
    return builder.bitcast(builder.gep(pointer, [position]), vector.as_pointer())


def _in_memory(pointer: Operand) -> Any:
    """Return the LLVM type of a vector in the memory of a pointer."""
    kind = number(pointer).kind
    known = {
        FLOAT32: FLOATS.code,
        FLOAT64: WIDE_FLOATS.code,
        INT32: INTEGERS.code,
        BFLOAT16: _HALVES,
        UINT8: _BYTES,
    }
    if not isinstance(kind, Pointer) or kind.element not in known:
        raise Untyped(f"there are no vectors in the memory of {kind}")
    return known[kind.element]


def _from_memory(builder: Any, loaded: Any) -> Any:
    """Convert a loaded vector to register form; bfloat16 is widened to float32."""
    if loaded.type == _HALVES:
        return widened(builder, loaded)
    return builder.zext(loaded, INTEGERS.code) if loaded.type == _BYTES else loaded


def _to_memory(builder: Any, vector: Any, kind: Any) -> Any:
    """Convert a vector to its form in memory of `kind`."""
    if kind == _HALVES:
        return rounded(builder, vector)
    return builder.trunc(vector, _BYTES) if kind == _BYTES else vector


def _in_registers(kind: Any) -> Kind:
    """Return the kind of lanes that memory of `kind` is loaded to and stored from."""
    return {FLOATS.code: FLOATS, _HALVES: FLOATS, WIDE_FLOATS.code: WIDE_FLOATS}.get(kind, INTEGERS)


def _lanes_of(builder: Any, vector: Operand, kind: Kind) -> Any:
    """Return lanes of a kind; those of float32 and float64 are converted into each other."""
    value = number(vector)
    if (value.kind, kind) == (FLOATS, WIDE_FLOATS):
        return builder.fpext(value.code, kind.code)
    if (value.kind, kind) == (WIDE_FLOATS, FLOATS):
        return builder.fptrunc(value.code, kind.code)
    return operand_of(builder, vector, kind)


def _integer(builder: Any, operand: Operand) -> Any:
    return operand_of(builder, operand, INT64)


def lanes(builder: Any, value: Operand) -> Operand:
    """Broadcast a value to all lanes."""
    given = number(value)
    if given.kind == INT64:
        return TypedValue(INTEGERS, broadcast(builder, builder.trunc(given.code, _INDEX), LANES))
    return TypedValue(FLOATS, broadcast(builder, converted(builder, given, FLOAT32).code, LANES))


def load_lanes(builder: Any, pointer: Operand, position: Operand, count: Operand) -> Operand:
    """Generate a masked load."""
    kind = _in_memory(pointer)
    place = _place(builder, number(pointer).code, _integer(builder, position), kind)
    mask, rest = first_lanes(builder, _integer(builder, count), LANES), ir.Constant(kind, None)
    loaded = load_lanes_of(builder, place, _ALIGNED, mask, rest)
    return TypedValue(_in_registers(kind), _from_memory(builder, loaded))


@typed(FLOATS, _POINTER, INT64, INT64, INT64)
def gather_lanes(builder: Any, pointer: Any, position: Any, step: Any, count: Any) -> Any:
    """Generate a masked gather."""
    numbers = ir.Constant(ir.VectorType(_WORD, LANES), list(range(LANES)))
    places = ir.VectorType(FLOAT32.code.as_pointer(), LANES)
    first = builder.ptrtoint(builder.gep(pointer, [position]), _WORD)
    distances = builder.mul(numbers, broadcast(builder, builder.mul(step, _WORD(4)), LANES))
    addresses = builder.add(broadcast(builder, first, LANES), distances)
    kind = FLOATS.code
    given = [builder.inttoptr(addresses, places), _INDEX(4), first_lanes(builder, count, LANES)]
    name = f"llvm.masked.gather.v{LANES}f32.v{LANES}p0"
    return call_function(builder, name, kind, [*given, ir.Constant(kind, None)])


def store_lanes(
    builder: Any, pointer: Operand, position: Operand, vector: Operand, count: Operand
) -> Operand:
    """Generate a masked store."""
    kind = _in_memory(pointer)
    place = _place(builder, number(pointer).code, _integer(builder, position), kind)
    value = _to_memory(builder, _lanes_of(builder, vector, _in_registers(kind)), kind)
    mask = first_lanes(builder, _integer(builder, count), LANES)
    store_lanes_of(builder, value, place, _ALIGNED, mask)
    return NOTHING


def stored_lanes(builder: Any, pointer: Operand, vector: Operand) -> Operand:
    """Round in registers if the memory type is narrower."""
    stored = _to_memory(builder, _lanes_of(builder, vector, FLOATS), _in_memory(pointer))
    return TypedValue(FLOATS, _from_memory(builder, stored))


@typed(FLAGS, FLOATS, FLOATS)
def above(builder: Any, left: Any, right: Any) -> Any:
    """Compare lane by lane."""
    return builder.fcmp_ordered(">", left, right)


@typed(FLAGS, FLOATS, FLOATS)
def exceeds(builder: Any, left: Any, right: Any) -> Any:
    """Compute not (left <= right), which is true if either is NaN, and right is not NaN."""
    beyond = builder.fcmp_unordered(">", left, right)
    return builder.and_(beyond, builder.fcmp_ordered("ord", right, right))


@typed(FLAGS, INTEGERS, INTEGERS)
def equals(builder: Any, left: Any, right: Any) -> Any:
    """Compare lane by lane."""
    return builder.icmp_signed("==", left, right)


def choose(builder: Any, mask: Operand, chosen: Operand, otherwise: Operand) -> Operand:
    """Select lane by lane."""
    kind = _lanes_kind(chosen)
    select = typed(kind, FLAGS, kind, kind)(ir.IRBuilder.select)
    return select(builder, mask, chosen, otherwise)


def add_lanes(builder: Any, left: Operand, right: Operand) -> Operand:
    """Add lane by lane."""
    kind, operands = _of_one_kind(builder, left, right)
    if kind == WIDE_FLOATS and adds_and_multiplies_apart():
        return TypedValue(kind, added_by_products(builder, LANES)(builder, *operands))
    add = builder.add if kind == INTEGERS else builder.fadd
    return TypedValue(kind, add(*operands))


def wide_lanes(builder: Any, vector: Operand) -> Operand:
    """Convert lane by lane."""
    return TypedValue(WIDE_FLOATS, _lanes_of(builder, vector, WIDE_FLOATS))


def narrow_lanes(builder: Any, vector: Operand) -> Operand:
    """Convert lane by lane."""
    return TypedValue(FLOATS, _lanes_of(builder, vector, FLOATS))


def subtract_lanes(builder: Any, left: Operand, right: Operand) -> Operand:
    """Subtract lane by lane."""
    kind, operands = _of_one_kind(builder, left, right)
    return TypedValue(kind, builder.fsub(*operands))


multiply_lanes = typed(FLOATS, FLOATS, FLOATS)(ir.IRBuilder.fmul)


@typed(WIDE_FLOATS, WIDE_FLOATS)
def log_lanes(builder: Any, vector: Any) -> Any:
    """Generate the logarithm of vectors."""
    return float64_code(builder, scalar_logarithm.log, vector)


@typed(FLOATS, FLOATS)
def exp2_lanes(builder: Any, exponent: Any) -> Any:
    """Multiply a polynomial of the fraction by a power of two, made of the integer's bits."""
    # Adding BIASED leaves the nearest integer plus 127 in the lowest bits.
    biased = builder.fadd(exponent, constant(FLOATS.code, BIASED))
    rest = builder.fsub(exponent, builder.fsub(biased, constant(FLOATS.code, BIASED)))
    total = constant(FLOATS.code, _EXP2[-1])
    for coefficient in reversed(_EXP2[:-1]):
        total = multiply_add(builder, rest, total, constant(FLOATS.code, coefficient))
    bits = builder.shl(builder.bitcast(biased, INTEGERS.code), constant(INTEGERS.code, 23))
    result = builder.fmul(total, builder.bitcast(bits, FLOATS.code))
    small = builder.fcmp_ordered("<", exponent, constant(FLOATS.code, -126.0))
    return builder.select(small, ir.Constant(FLOATS.code, None), result)


def _larger(builder: Any, left: Any, right: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


def maximum_lanes(builder: Any, left: Operand, right: Operand) -> Operand:
    """Compare lane by lane."""
    kind, operands = _of_one_kind(builder, left, right)
    return TypedValue(kind, _larger(builder, *operands))


@typed(FLOAT32, FLOATS)
def largest_lane(builder: Any, vector: Any) -> Any:
    """Reduce halves of the vector."""
    return joined(builder, _larger, vector)


@typed(FLOATS, FLOATS, INT64, FLOATS)
def keep_lanes(builder: Any, vector: Any, count: Any, otherwise: Any) -> Any:
    """Select lane by lane."""
    return builder.select(first_lanes(builder, count, LANES), vector, otherwise)


@typed(FLOAT32, FLOATS, INT64)
def sum_lanes(builder: Any, vector: Any, count: Any) -> Any:
    """Add halves of the vector, whose lanes from `count` on are replaced by 0."""
    mask, zero = first_lanes(builder, count, LANES), ir.Constant(FLOATS.code, None)
    return joined(builder, ir.IRBuilder.fadd, builder.select(mask, vector, zero))


def _of_one_kind(builder: Any, left: Operand, right: Operand) -> tuple[Kind, list[Any]]:
    """Return the kind and the code of two vectors, float32 widened if the other one is float64."""
    kinds = [_lanes_kind(each) for each in (left, right)]
    kind = WIDE_FLOATS if WIDE_FLOATS in kinds else kinds[0]
    return kind, [_lanes_of(builder, each, kind) for each in (left, right)]


def _lanes_kind(operand: Operand) -> Kind:
    kind = number(operand).kind
    if kind not in (FLOATS, WIDE_FLOATS, INTEGERS):
        raise Untyped(f"a vector is needed, not {kind}")
    assert isinstance(kind, Kind)
    return kind


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the columns of sixteen vectors, by shuffles that are single instructions."""
    lanes_of = range(LANES)
    # Even or odd halves of every four lanes of two rows, by single lanes and by pairs; every other
    # quarter.
    singles = [
        [4 * (i // 4) + half + i % 4 // 2 + LANES * (i % 2) for i in lanes_of] for half in (0, 2)
    ]
    pairs = [
        [4 * (i // 4) + half + i % 2 + LANES * (i % 4 // 2) for i in lanes_of] for half in (0, 2)
    ]
    quarters = [[8 * (i // 4) + 4 * odd + i % 4 for i in lanes_of] for odd in (0, 1)]

    def both(left: Any, right: Any, masks: list[list[int]]) -> tuple[Any, Any]:
        first, second = (
            builder.shuffle_vector(left, right, ir.Constant(INTEGERS.code, mask)) for mask in masks
        )
        return first, second

    columns: list[Any] = [None] * LANES
    fours: list[list[Any]] = []
    for row in range(0, LANES, 4):
        upper, lower = (both(rows[i], rows[i + 1], singles) for i in (row, row + 2))
        fours.append([*both(upper[0], lower[0], pairs), *both(upper[1], lower[1], pairs)])
    for i in range(4):
        upper, lower = (both(fours[j][i], fours[j + 1][i], quarters) for j in (0, 2))
        for odd in (0, 1):
            columns[i + 4 * odd], columns[i + 4 * odd + 8] = both(upper[odd], lower[odd], quarters)
    return columns


@typed(None, _POINTER, *[INT64] * 4, _POINTER, INT64, INT64)
def transpose_lanes(
    builder: Any,
    pointer: Any,
    position: Any,
    stride: Any,
    rows: Any,
    columns: Any,
    output: Any,
    to: Any,
    step: Any,
) -> None:
    """Generate masked loads, shuffles and masked stores.

    Rows and columns beyond the last use the address of the first; such columns are stored there
    before the first column.
    """
    kind = FLOATS.code

    def places(data: Any, at: Any, step: Any, limit: Any) -> list[Any]:
        distances = (builder.mul(step, _WORD(index)) for index in range(LANES))
        within = [builder.icmp_signed("<", _WORD(index), limit) for index in range(LANES)]
        found = map(builder.select, within, distances, [_WORD(0)] * LANES)
        return [_place(builder, data, builder.add(at, each), kind) for each in found]

    mask, rest = first_lanes(builder, columns, LANES), ir.Constant(kind, None)
    loaded = [
        load_lanes_of(builder, place, _ALIGNED, mask, rest)
        for place in places(pointer, position, stride, rows)
    ]
    transposed, mask = _transposed(builder, loaded), first_lanes(builder, rows, LANES)
    targets = places(output, to, step, columns)
    for vector, place in zip(reversed(transposed), reversed(targets), strict=True):
        store_lanes_of(builder, vector, place, _ALIGNED, mask)


def fetch(builder: Any, pointer: Operand, position: Operand) -> Operand:
    """Generate a prefetch into every cache."""
    if not isinstance(number(pointer).kind, Pointer):
        raise Untyped("only memory can be prefetched")
    prefetch(builder, number(pointer).code, _integer(builder, position))
    return NOTHING


@typed(FLOATS, FLOATS, FLOATS)
def pair_lanes(builder: Any, low: Any, high: Any) -> Any:
    """Round both vectors and combine them to 32-bit words."""
    words = [builder.zext(rounded(builder, each), INTEGERS.code) for each in (low, high)]
    half = ir.Constant(INTEGERS.code, [16] * LANES)
    return builder.bitcast(builder.or_(words[0], builder.shl(words[1], half)), FLOATS.code)


@typed(FLOATS, FLOATS, FLOATS)
def join_lanes(builder: Any, low: Any, high: Any) -> Any:
    """Combine the upper halves of both vectors' words."""
    lower, upper = (builder.bitcast(each, INTEGERS.code) for each in (low, high))
    half = ir.Constant(INTEGERS.code, [16] * LANES)
    return builder.bitcast(builder.or_(builder.lshr(lower, half), upper), FLOATS.code)


VECTORS: dict[Any, Intrinsic] = {
    vectors.exp2_lanes: exp2_lanes,
    vectors.join_lanes: join_lanes,
    vectors.keep_lanes: keep_lanes,
    vectors.largest_lane: largest_lane,
    vectors.log_lanes: log_lanes,
    vectors.maximum_lanes: maximum_lanes,
    vectors.above: above,
    vectors.add_lanes: add_lanes,
    vectors.choose: choose,
    vectors.equals: equals,
    vectors.exceeds: exceeds,
    vectors.fetch: fetch,
    vectors.gather_lanes: gather_lanes,
    vectors.lanes: lanes,
    vectors.load_lanes: load_lanes,
    vectors.multiply_lanes: multiply_lanes,
    vectors.narrow_lanes: narrow_lanes,
    vectors.pair_lanes: pair_lanes,
    vectors.store_lanes: store_lanes,
    vectors.stored_lanes: stored_lanes,
    vectors.subtract_lanes: subtract_lanes,
    vectors.sum_lanes: sum_lanes,
    vectors.transpose_lanes: transpose_lanes,
    vectors.wide_lanes: wide_lanes,
}
