"""LLVM code for vectors of neighbouring columns, for reduction_intrinsics and scan_intrinsics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from mxrun.codegen.llvm_bfloat16 import constant
from mxrun.codegen.llvm_target import call_function, multiply_add
from mxrun.codegen.sequential.llvm_control import WORD, counted_loop
from mxrun.codegen.sequential.masked import load_lanes_of, store_lanes_of

INDEX = ir.IntType(32)
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()
_BYTES = {FLOAT: 4, DOUBLE: 8}

# Lanes of a vector of a row, and number of such vectors processed side by side.
ROW_LANES = 16
ROW_VECTORS = 4
# Elements of a cache line.
LINE = 16


def broadcast(builder: Any, value: Any, count: int) -> Any:
    """Broadcast a value to a vector of `count` lanes."""
    vector = ir.VectorType(value.type, count)
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, value, INDEX(0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(INDEX, count), [0] * count)
    )


def lane_numbers(kind: Any, count: int) -> Any:
    """Return the vector 0, 1, 2, ..."""
    return ir.Constant(ir.VectorType(kind, count), list(range(count)))


def first_lanes(builder: Any, number: Any, count: int) -> Any:
    """Return the mask of the first `number` of `count` lanes."""
    limit = broadcast(builder, builder.trunc(number, INDEX), count)
    return builder.icmp_signed("<", lane_numbers(INDEX, count), limit)


def vector_place(builder: Any, pointer: Any, position: Any, count: int) -> Any:
    """Return the address of `count` elements as a vector pointer."""
    kind = ir.VectorType(pointer.type.pointee, count)
    return builder.bitcast(builder.gep(pointer, [position]), kind.as_pointer())


def prefetch(builder: Any, pointer: Any, position: Any) -> None:
    """Prefetch the cache line of an element, which need not exist."""
    place = builder.bitcast(builder.gep(pointer, [position]), ir.IntType(8).as_pointer())
    # Read access, high locality, data cache.
    arguments = [place, *map(INDEX, (0, 3, 1))]
    call_function(builder, "llvm.prefetch.p0", ir.VoidType(), arguments)


def load_vector(builder: Any, place: Any, mask: Any, count: int) -> Any:
    """Load a vector; lanes outside the mask are 0."""
    kind = ir.VectorType(place.type.pointee.element, count)
    nbytes = _BYTES[kind.element]
    if mask is None:
        return builder.load(place, align=nbytes)
    return load_lanes_of(builder, place, INDEX(nbytes), mask, ir.Constant(kind, None))


def store_vector(builder: Any, value: Any, place: Any, mask: Any) -> None:
    """Store a vector; lanes outside the mask are not written."""
    nbytes = _BYTES[value.type.element]
    if mask is None:
        builder.store(value, place, align=nbytes)
        return
    store_lanes_of(builder, value, place, INDEX(nbytes), mask)


def gather_vector(builder: Any, pointer: Any, position: Any, step: Any, mask: Any) -> Any:
    """Load every `step`-th element from `position` on."""
    count = ROW_LANES
    kind, places = ir.VectorType(FLOAT, count), ir.VectorType(FLOAT.as_pointer(), count)
    first = builder.ptrtoint(builder.gep(pointer, [position]), WORD)
    bytes_apart = broadcast(builder, builder.mul(step, WORD(4)), count)
    distances = builder.mul(lane_numbers(WORD, count), bytes_apart)
    addresses = builder.add(broadcast(builder, first, count), distances)
    pointers = builder.inttoptr(addresses, places)
    arguments = [pointers, INDEX(4), mask, constant(kind, 0.0)]
    return call_function(builder, f"llvm.masked.gather.v{count}f32.v{count}p0", kind, arguments)


def added_by_products(builder: Any, count: int) -> Callable[[Any, Any, Any], Any]:
    """Return the function (builder, total, value) that computes total + value as value * 1 + total.

    The bits are the same, but the units for additions are left to the conversions. The fence hides
    from the compiler that the factor is 1.
    """
    one = call_function(builder, "llvm.arithmetic.fence.f64", DOUBLE, [DOUBLE(1.0)])
    ones = broadcast(builder, one, count)
    return lambda builder, total, value: multiply_add(builder, value, ones, total)


def side_by_side(builder: Any, vectors: list[Any]) -> Any:
    """Return one vector of the lanes of vectors, whose number is a power of two."""
    while len(vectors) > 1:
        lanes = lane_numbers(INDEX, 2 * vectors[0].type.count)
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.shuffle_vector(low, high, lanes) for low, high in pairs]
    return vectors[0]


def joined(builder: Any, join: Any, lanes: Any) -> Any:
    """Reduce a vector to a scalar: combine the upper half with the lower until one lane is left."""
    count = lanes.type.count
    while count > 1:
        count //= 2
        halves = []
        for first in (0, count):
            chosen = [first + lane for lane in range(count)]
            mask = ir.Constant(ir.VectorType(INDEX, count), chosen)
            halves.append(builder.shuffle_vector(lanes, lanes, mask))
        lanes = join(builder, *halves)
    return builder.extract_element(lanes, INDEX(0))


@dataclass(frozen=True)
class Rows:
    """Rows that begin `stride` elements apart, with elements `step` apart."""

    data: Any
    step: Any
    stride: Any
    count: Any


@dataclass(frozen=True)
class Columns:
    """Vectors of neighbouring columns: the start of each, and the mask of valid lanes."""

    rows: Rows
    starts: list[Any]
    mask: Any
    gathered: bool

    def load(self, builder: Any, row: Any) -> list[Any]:
        """Load the elements of one row."""
        offset = builder.mul(row, self.rows.stride)
        if self.gathered:
            places = [builder.add(offset, builder.mul(s, self.rows.step)) for s in self.starts]
            data, step = self.rows.data, self.rows.step
            return [gather_vector(builder, data, place, step, self.mask) for place in places]
        places = [builder.add(offset, start) for start in self.starts]
        return [self.read(builder, self.rows.data, place) for place in places]

    def read(self, builder: Any, pointer: Any, position: Any) -> Any:
        """Load one vector from contiguous memory."""
        return load_vector(
            builder, vector_place(builder, pointer, position, ROW_LANES), self.mask, ROW_LANES
        )

    def store(self, builder: Any, pointer: Any, vectors: list[Any]) -> None:
        """Store one vector for each start."""
        for start, vector in zip(self.starts, vectors, strict=True):
            store_vector(
                builder, vector, vector_place(builder, pointer, start, ROW_LANES), self.mask
            )


def by_columns(
    builder: Any,
    rows: Rows,
    count: Any,
    work: Callable[[Any, Columns], None],
    vectors: int = ROW_VECTORS,
) -> None:
    """Generate code that does `work` on `count` columns: `vectors` at a time, then single ones."""

    def singly(first: Any, gathered: bool) -> None:
        remaining, width = builder.sub(count, first), WORD(ROW_LANES)
        steps = builder.sdiv(builder.add(remaining, WORD(ROW_LANES - 1)), width)
        with counted_loop(builder, steps) as index:
            done = builder.mul(index, width)
            mask = first_lanes(builder, builder.sub(remaining, done), ROW_LANES)
            work(builder, Columns(rows, [builder.add(first, done)], mask, gathered))

    with builder.if_else(builder.icmp_signed("==", rows.step, WORD(1))) as (dense, sparse):
        with dense:
            block = WORD(ROW_LANES * vectors)
            blocks = builder.sdiv(count, block)
            with counted_loop(builder, blocks) as index:
                first = builder.mul(index, block)
                starts = [builder.add(first, WORD(i * ROW_LANES)) for i in range(vectors)]
                work(builder, Columns(rows, starts, None, False))
            singly(builder.mul(blocks, block), False)
        with sparse:
            singly(WORD(0), True)
