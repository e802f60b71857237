"""LLVM code for vectors of lanes: in registers of the processor, or in those of half a warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from mxrun.codegen.llvm_target import (
    call_function,
    constant,
    like,
    multiply_add,
    type_name,
)
from mxrun.codegen.sequential import half_warp
from mxrun.codegen.sequential.llvm_control import WORD
from mxrun.codegen.sequential.masked import load_lanes_of, store_lanes_of
from mxrun.codegen.target import is_card
from mxrun.codegen.vectors import LANES

INDEX = ir.IntType(32)
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()


def broadcast(builder: Any, value: Any, count: int) -> Any:
    """Broadcast a value to a vector of `count` lanes."""
    if is_card():
        return value
    vector = ir.VectorType(value.type, count)
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, value, INDEX(0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(INDEX, count), [0] * count)
    )


def lane_numbers(builder: Any, kind: Any, count: int) -> Any:
    """Return the vector 0, 1, 2, ..."""
    if is_card():
        return half_warp.lane(builder, kind, count)
    return ir.Constant(ir.VectorType(kind, count), list(range(count)))


def first_lanes(builder: Any, number: Any, count: int) -> Any:
    """Return the mask of the first `number` of `count` lanes."""
    limit = broadcast(builder, builder.trunc(number, INDEX), count)
    return builder.icmp_signed("<", lane_numbers(builder, INDEX, count), limit)


def vector_place(builder: Any, pointer: Any, position: Any, count: int) -> Any:
    """Return the address of `count` elements as a vector pointer."""
    if is_card():
        own = builder.add(position, half_warp.lane(builder, WORD, count))
        return builder.gep(pointer, [own])
    kind = ir.VectorType(pointer.type.pointee, count)
    return builder.bitcast(builder.gep(pointer, [position]), kind.as_pointer())


def prefetch(builder: Any, pointer: Any, position: Any) -> None:
    """Prefetch the cache line of an element, which need not exist; on cards other warps wait."""
    if is_card():
        return
    place = builder.bitcast(builder.gep(pointer, [position]), ir.IntType(8).as_pointer())
    # Read access, high locality, data cache.
    arguments = [place, *map(INDEX, (0, 3, 1))]
    call_function(builder, "llvm.prefetch.p0", ir.VoidType(), arguments)


def load_vector(builder: Any, place: Any, mask: Any | None) -> Any:
    """Load a vector; lanes outside the mask, if there is one, are 0."""
    kind = place.type.pointee
    align = _bytes(kind)
    if mask is None:
        return builder.load(place, align=align)
    zero = ir.Constant(kind, None)
    if is_card():
        return half_warp.load_lanes(builder, place, mask, zero)
    return load_lanes_of(builder, place, INDEX(align), mask, zero)


def store_vector(
    builder: Any, value: Any, place: Any, mask: Any | None, count: int = LANES
) -> None:
    """Store a vector of `count` lanes; those outside the mask, if there is one, are not written."""
    align = _bytes(value.type)
    if is_card():
        half_warp.store_lanes(builder, value, place, mask, count)
    elif mask is None:
        builder.store(value, place, align=align)
    else:
        store_lanes_of(builder, value, place, INDEX(align), mask)


def _bytes(kind: Any) -> int:
    """Return the size of a lane."""
    element = getattr(kind, "element", kind)
    if isinstance(element, ir.IntType):
        return int(element.width) // 8
    return 8 if element == DOUBLE else 4


def places_apart(builder: Any, pointer: Any, position: Any, step: Any, count: int) -> Any:
    """Return the addresses of every `step`-th element from `position` on, for `gather_vector`."""
    if is_card():
        distance = builder.mul(step, half_warp.lane(builder, WORD, count))
        return builder.gep(pointer, [builder.add(position, distance)])
    first = builder.ptrtoint(builder.gep(pointer, [position]), WORD)
    bytes_apart = broadcast(builder, builder.mul(step, WORD(4)), count)
    distances = builder.mul(lane_numbers(builder, WORD, count), bytes_apart)
    addresses = builder.add(broadcast(builder, first, count), distances)
    return builder.inttoptr(addresses, ir.VectorType(pointer.type, count))


def gather_vector(builder: Any, places: Any, mask: Any) -> Any:
    """Load float32 lanes, each from its own address; those outside the mask are 0."""
    if is_card():
        return load_vector(builder, places, mask)
    kind = like(places.type, FLOAT)
    name = f"llvm.masked.gather.{type_name(kind)}.v{kind.count}p0"
    return call_function(builder, name, kind, [places, INDEX(4), mask, constant(kind, 0.0)])


def added_by_products(builder: Any, count: int) -> Callable[[Any, Any, Any], Any]:
    """Return the function (builder, total, value) that computes total + value as value * 1 + total.

    The bits are the same, but the units for additions are left to the conversions. The fence hides
    from the compiler that the factor is 1.
    """
    one = call_function(builder, "llvm.arithmetic.fence.f64", DOUBLE, [DOUBLE(1.0)])
    ones = broadcast(builder, one, count)
    return lambda builder, total, value: multiply_add(builder, value, ones, total)


def joined(builder: Any, join: Any, vectors: list[Any], count: int) -> Any:
    """Reduce vectors of `count` lanes to a scalar, as one vector of all their lanes.

    The number of vectors is a power of two. The upper half is combined with the lower until one
    lane is left.
    """
    if is_card():
        while len(vectors) > 1:
            half = len(vectors) // 2
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [join(builder, low, high) for low, high in pairs]
        return half_warp.joined(builder, join, vectors[0], count)
    (lanes,) = _side_by_side(builder, vectors)
    count = lanes.type.count
    while count > 1:
        count //= 2
        lanes = join(builder, *(_part(builder, lanes, first, count) for first in (0, count)))
    return builder.extract_element(lanes, INDEX(0))


def _side_by_side(builder: Any, vectors: list[Any]) -> list[Any]:
    while len(vectors) > 1:
        lanes = lane_numbers(builder, INDEX, 2 * vectors[0].type.count)
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.shuffle_vector(low, high, lanes) for low, high in pairs]
    return vectors


def _part(builder: Any, lanes: Any, first: int, count: int) -> Any:
    chosen = ir.Constant(ir.VectorType(INDEX, count), [first + lane for lane in range(count)])
    return builder.shuffle_vector(lanes, lanes, chosen)


def moved_up(builder: Any, vector: Any, distance: int, count: int) -> Any:
    """Return the vector whose lane i is lane i - `distance` of another one, or 0."""
    if is_card():
        moved = half_warp.shuffled(builder, "up", vector, distance)
        is_there = builder.icmp_signed(">=", half_warp.lane(builder, INDEX, count), INDEX(distance))
        return builder.select(is_there, moved, constant(vector.type, 0.0))
    chosen = [count + lane - distance if lane >= distance else 0 for lane in range(count)]
    return builder.shuffle_vector(constant(vector.type, 0.0), vector, _indices(chosen))


def reversed_lanes(builder: Any, vector: Any, count: int) -> Any:
    """Reverse the lanes."""
    if is_card():
        return half_warp.shuffled(builder, "bfly", vector, count - 1)
    return builder.shuffle_vector(vector, vector, _indices(list(range(count))[::-1]))


def _indices(chosen: list[int]) -> Any:
    return ir.Constant(ir.VectorType(INDEX, len(chosen)), chosen)
