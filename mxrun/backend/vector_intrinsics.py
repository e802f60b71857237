"""numba implementations of the intrinsics in `vectors`, with LLVM vectors.

Imported only when a function must be compiled, like `numba_intrinsics`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from mxrun.backend.llvm_bfloat16 import rounded, widened
from mxrun.backend.vectors import LANES

_INDEX = ir.IntType(32)
_WORD = ir.IntType(64)
_MASK = ir.VectorType(ir.IntType(1), LANES)
_BYTES = ir.VectorType(ir.IntType(8), LANES)
_HALVES = ir.VectorType(ir.IntType(16), LANES)
_ALIGNED = _INDEX(1)


class Lanes(types.Type):  # type: ignore[misc]
    """numba type of a vector of `element`s."""

    def __init__(self, element: Any, code: Any) -> None:
        self.code = ir.VectorType(code, LANES)
        super().__init__(name=f"Lanes({element})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    """Data model of a vector: the LLVM vector itself, in a register."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.code)


FLOATS = Lanes(types.float32, ir.FloatType())
INTEGERS = Lanes(types.int32, _INDEX)
FLAGS = Lanes(types.boolean, ir.IntType(1))


def _broadcast(builder: Any, value: Any) -> Any:
    vector = ir.VectorType(value.type, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _INDEX(0))
    zeros = ir.Constant(INTEGERS.code, [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


def _first(builder: Any, count: Any) -> Any:
    """Return the mask of the first `count` lanes."""
    limit = _broadcast(builder, builder.trunc(count, _INDEX))
    return builder.icmp_signed("<", ir.Constant(INTEGERS.code, list(range(LANES))), limit)


def _place(builder: Any, pointer: Any, position: Any, vector: Any) -> Any:
    """Return the address of a vector in memory."""
    return builder.bitcast(builder.gep(pointer, [position]), vector.as_pointer())


def _in_memory(element: Any) -> Any:
    """Return the LLVM type of a vector in memory."""
    known = {types.float32: FLOATS.code, types.int32: INTEGERS.code, types.uint16: _HALVES}
    return known.get(element, _BYTES)


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


def _masked(builder: Any, name: str, kind: Any, result: Any, arguments: list[Any]) -> Any:
    suffix = {FLOATS.code: "f32", INTEGERS.code: "i32", _HALVES: "i16"}.get(kind, "i8")
    declared = ir.FunctionType(result, [argument.type for argument in arguments])
    full = f"llvm.masked.{name}.v{LANES}{suffix}.p0"
    function = cgutils.get_or_insert_function(builder.module, declared, full)
    return builder.call(function, arguments)


@intrinsic
def lanes(typing_context: Any, value: Any) -> Any:
    """Broadcast a value to all lanes."""
    is_integer = isinstance(value, types.Integer)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (number,) = arguments
        return _broadcast(builder, builder.trunc(number, _INDEX) if is_integer else number)

    if is_integer:
        return INTEGERS(types.int64), generate
    return FLOATS(types.float32), generate


@intrinsic
def load_lanes(typing_context: Any, pointer: Any, position: Any, count: Any) -> Any:
    """Generate a masked load."""
    element = pointer.dtype
    kind = _in_memory(element)
    result = FLOATS if kind in (FLOATS.code, _HALVES) else INTEGERS

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base, start, number = arguments
        place = _place(builder, base, start, kind)
        rest = ir.Constant(kind, None)
        loaded = _masked(
            builder, "load", kind, kind, [place, _ALIGNED, _first(builder, number), rest]
        )
        return _from_memory(builder, loaded)

    return result(pointer, types.int64, types.int64), generate


@intrinsic
def gather_lanes(typing_context: Any, pointer: Any, position: Any, step: Any, count: Any) -> Any:
    """Generate a masked gather."""
    numbers = ir.Constant(ir.VectorType(_WORD, LANES), list(range(LANES)))
    places = ir.VectorType(FLOATS.code.element.as_pointer(), LANES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base, start, apart, number = arguments
        first = builder.ptrtoint(builder.gep(base, [start]), _WORD)
        distances = builder.mul(numbers, _broadcast(builder, builder.mul(apart, _WORD(4))))
        addresses = builder.add(_broadcast(builder, first), distances)
        given = [builder.inttoptr(addresses, places), _INDEX(4), _first(builder, number)]
        kind = FLOATS.code
        declared = ir.FunctionType(kind, [*(each.type for each in given), kind])
        name = f"llvm.masked.gather.v{LANES}f32.v{LANES}p0"
        function = cgutils.get_or_insert_function(builder.module, declared, name)
        return builder.call(function, [*given, ir.Constant(kind, None)])

    return FLOATS(pointer, types.int64, types.int64, types.int64), generate


@intrinsic
def store_lanes(typing_context: Any, pointer: Any, position: Any, vector: Any, count: Any) -> Any:
    """Generate a masked store."""
    kind = _in_memory(pointer.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base, start, value, number = arguments
        place = _place(builder, base, start, kind)
        value = _to_memory(builder, value, kind)
        _masked(
            builder,
            "store",
            kind,
            ir.VoidType(),
            [value, place, _ALIGNED, _first(builder, number)],
        )
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vector, types.int64), generate


@intrinsic
def stored_lanes(typing_context: Any, pointer: Any, vector: Any) -> Any:
    """Round in registers if the memory type is narrower."""
    kind = _in_memory(pointer.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, value = arguments
        return _from_memory(builder, _to_memory(builder, value, kind))

    return FLOATS(pointer, FLOATS), generate


def _lanewise(result: Any, operands: tuple[Any, ...], code: Callable[..., Any]) -> Any:
    """Create an intrinsic of vectors from one LLVM expression."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return code(builder, *arguments)

    return result(*operands), generate


@intrinsic
def above(typing_context: Any, left: Any, right: Any) -> Any:
    """Compare lane by lane."""
    return _lanewise(FLAGS, (FLOATS, FLOATS), lambda b, x, y: b.fcmp_ordered(">", x, y))


@intrinsic
def exceeds(typing_context: Any, left: Any, right: Any) -> Any:
    """Compute not (left <= right), which is true if either is NaN, and right is not NaN."""

    def code(builder: Any, a: Any, b: Any) -> Any:
        return builder.and_(builder.fcmp_unordered(">", a, b), builder.fcmp_ordered("ord", b, b))

    return _lanewise(FLAGS, (FLOATS, FLOATS), code)


@intrinsic
def equals(typing_context: Any, left: Any, right: Any) -> Any:
    """Compare lane by lane."""
    return _lanewise(FLAGS, (INTEGERS, INTEGERS), lambda b, x, y: b.icmp_signed("==", x, y))


@intrinsic
def choose(typing_context: Any, mask: Any, chosen: Any, otherwise: Any) -> Any:
    """Select lane by lane."""
    return _lanewise(chosen, (FLAGS, chosen, chosen), lambda b, m, x, y: b.select(m, x, y))


@intrinsic
def add_lanes(typing_context: Any, left: Any, right: Any) -> Any:
    """Add lane by lane."""
    if left == FLOATS:
        return _lanewise(FLOATS, (FLOATS, FLOATS), lambda b, x, y: b.fadd(x, y))
    return _lanewise(INTEGERS, (INTEGERS, INTEGERS), lambda b, x, y: b.add(x, y))


@intrinsic
def subtract_lanes(typing_context: Any, left: Any, right: Any) -> Any:
    """Subtract lane by lane."""
    return _lanewise(FLOATS, (FLOATS, FLOATS), lambda b, x, y: b.fsub(x, y))


@intrinsic
def multiply_lanes(typing_context: Any, left: Any, right: Any) -> Any:
    """Multiply lane by lane."""
    return _lanewise(FLOATS, (FLOATS, FLOATS), lambda b, x, y: b.fmul(x, y))


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


@intrinsic
def transpose_lanes(
    typing_context: Any,
    pointer: Any,
    position: Any,
    stride: Any,
    rows: Any,
    columns: Any,
    output: Any,
    to: Any,
    step: Any,
) -> Any:
    """Generate masked loads, shuffles and masked stores.

    Rows and columns beyond the last use the address of the first; such columns are stored there
    before the first column.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base, start, apart, height, width, target, first, beyond = arguments
        kind = FLOATS.code

        def places(data: Any, at: Any, step: Any, limit: Any) -> list[Any]:
            distances = (builder.mul(step, _WORD(index)) for index in range(LANES))
            within = [builder.icmp_signed("<", _WORD(index), limit) for index in range(LANES)]
            found = map(builder.select, within, distances, [_WORD(0)] * LANES)
            return [_place(builder, data, builder.add(at, each), kind) for each in found]

        mask, rest = _first(builder, width), ir.Constant(kind, None)
        rows = [
            _masked(builder, "load", kind, kind, [place, _ALIGNED, mask, rest])
            for place in places(base, start, apart, height)
        ]
        columns, mask = _transposed(builder, rows), _first(builder, height)
        to = places(target, first, beyond, width)
        for vector, place in zip(reversed(columns), reversed(to), strict=True):
            given = [vector, place, _ALIGNED, mask]
            _masked(builder, "store", kind, ir.VoidType(), given)
        return context.get_dummy_value()

    word = types.int64
    return types.void(pointer, word, word, word, word, output, word, word), generate


@intrinsic
def fetch(typing_context: Any, pointer: Any, position: Any) -> Any:
    """Generate a prefetch into every cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        declared = ir.FunctionType(ir.VoidType(), [byte, _INDEX, _INDEX, _INDEX])
        function = cgutils.get_or_insert_function(builder.module, declared, "llvm.prefetch.p0")
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte)
        builder.call(function, [place, _INDEX(0), _INDEX(3), _INDEX(1)])
        return context.get_dummy_value()

    return types.void(pointer, types.int64), generate


@intrinsic
def pair_lanes(typing_context: Any, low: Any, high: Any) -> Any:
    """Round both vectors and combine them to 32-bit words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = [builder.zext(rounded(builder, each), INTEGERS.code) for each in arguments]
        half = ir.Constant(INTEGERS.code, [16] * LANES)
        return builder.bitcast(builder.or_(words[0], builder.shl(words[1], half)), FLOATS.code)

    return FLOATS(FLOATS, FLOATS), generate


VECTORS = {
    "above": above,
    "add_lanes": add_lanes,
    "choose": choose,
    "equals": equals,
    "exceeds": exceeds,
    "fetch": fetch,
    "gather_lanes": gather_lanes,
    "lanes": lanes,
    "load_lanes": load_lanes,
    "multiply_lanes": multiply_lanes,
    "pair_lanes": pair_lanes,
    "store_lanes": store_lanes,
    "stored_lanes": stored_lanes,
    "subtract_lanes": subtract_lanes,
    "transpose_lanes": transpose_lanes,
}
