"""Code for numbers side by side in memory, for `reduction_vocabulary` and `scan_vocabulary`.

Imported only when a function must be compiled, like `vocabulary`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils

WORD, INDEX = ir.IntType(64), ir.IntType(32)
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()

# Lanes of one vector of a row's, and how many vectors are taken down the rows side by side.
ROW_LANES = 16
ROW_VECTORS = 4
# Elements of a line of the cache.
LINE = 16


def constant(kind: Any, number: float) -> Any:
    """One number of a type, or that in every lane."""
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


def broadcast(builder: Any, value: Any, count: int) -> Any:
    """One value in every lane."""
    vector = ir.VectorType(value.type, count)
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, value, INDEX(0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(INDEX, count), [0] * count)
    )


def lane_numbers(kind: Any, count: int) -> Any:
    """0, 1, 2, ..."""
    return ir.Constant(ir.VectorType(kind, count), list(range(count)))


def first_lanes(builder: Any, number: Any, count: int) -> Any:
    """The mask of the first `number` of `count` lanes."""
    limit = broadcast(builder, builder.trunc(number, INDEX), count)
    return builder.icmp_signed("<", lane_numbers(INDEX, count), limit)


def vector_place(builder: Any, pointer: Any, position: Any, count: int) -> Any:
    """The address of `count` elements as one vector."""
    kind = ir.VectorType(FLOAT, count)
    return builder.bitcast(builder.gep(pointer, [position]), kind.as_pointer())


def call_intrinsic(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """A call of one of LLVM's own functions."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def prefetch(builder: Any, pointer: Any, position: Any) -> None:
    """Have the line of memory brought that an element lies in, which need not exist."""
    place = builder.bitcast(builder.gep(pointer, [position]), ir.IntType(8).as_pointer())
    # To read, to stay in every cache, data.
    arguments = [place, *map(INDEX, (0, 3, 1))]
    call_intrinsic(builder, "llvm.prefetch.p0", ir.VoidType(), arguments)


def load_vector(builder: Any, place: Any, mask: Any, count: int) -> Any:
    """A vector; under a mask, with 0 for what lies outside."""
    if mask is None:
        return builder.load(place, align=4)
    kind = ir.VectorType(FLOAT, count)
    arguments = [place, INDEX(4), mask, constant(kind, 0.0)]
    return call_intrinsic(builder, f"llvm.masked.load.v{count}f32.p0", kind, arguments)


def store_vector(builder: Any, value: Any, place: Any, mask: Any) -> None:
    """A vector; under a mask, what lies inside."""
    if mask is None:
        builder.store(value, place, align=4)
        return
    name = f"llvm.masked.store.v{value.type.count}f32.p0"
    call_intrinsic(builder, name, ir.VoidType(), [value, place, INDEX(4), mask])


def gather_vector(builder: Any, pointer: Any, position: Any, step: Any, mask: Any) -> Any:
    """Every `step`-th element from `position` on."""
    count = ROW_LANES
    kind, places = ir.VectorType(FLOAT, count), ir.VectorType(FLOAT.as_pointer(), count)
    first = builder.ptrtoint(builder.gep(pointer, [position]), WORD)
    bytes_apart = broadcast(builder, builder.mul(step, WORD(4)), count)
    distances = builder.mul(lane_numbers(WORD, count), bytes_apart)
    addresses = builder.add(broadcast(builder, first, count), distances)
    pointers = builder.inttoptr(addresses, places)
    arguments = [pointers, INDEX(4), mask, constant(kind, 0.0)]
    return call_intrinsic(builder, f"llvm.masked.gather.v{count}f32.v{count}p0", kind, arguments)


def joined(builder: Any, join: Any, lanes: Any) -> Any:
    """All lanes as one: the upper half to the lower, until one is left."""
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
    """Equal runs of memory, `stride` elements apart, whose elements lie `step` apart."""

    data: Any
    step: Any
    stride: Any
    count: Any


@dataclass(frozen=True)
class Columns:
    """Vectors of neighbouring columns: where each starts, and which lanes of it there are."""

    rows: Rows
    starts: list[Any]
    mask: Any
    gathered: bool

    def load(self, builder: Any, row: Any) -> list[Any]:
        """The elements in one row."""
        offset = builder.mul(row, self.rows.stride)
        if self.gathered:
            places = [builder.add(offset, builder.mul(s, self.rows.step)) for s in self.starts]
            data, step = self.rows.data, self.rows.step
            return [gather_vector(builder, data, place, step, self.mask) for place in places]
        places = [builder.add(offset, start) for start in self.starts]
        return [self.read(builder, self.rows.data, place) for place in places]

    def read(self, builder: Any, pointer: Any, position: Any) -> Any:
        """One vector of dense memory."""
        return load_vector(
            builder, vector_place(builder, pointer, position, ROW_LANES), self.mask, ROW_LANES
        )

    def store(self, builder: Any, pointer: Any, vectors: list[Any]) -> None:
        """A vector of each."""
        for start, vector in zip(self.starts, vectors, strict=True):
            store_vector(
                builder, vector, vector_place(builder, pointer, start, ROW_LANES), self.mask
            )


def by_columns(builder: Any, rows: Rows, count: Any, work: Callable[[Any, Columns], None]) -> None:
    """Code that does `work` on `count` columns: on vectors side by side, then on single ones."""

    def singly(first: Any, gathered: bool) -> None:
        left, width = builder.sub(count, first), WORD(ROW_LANES)
        turns = builder.sdiv(builder.add(left, WORD(ROW_LANES - 1)), width)
        with cgutils.for_range(builder, turns) as loop:
            done = builder.mul(loop.index, width)
            mask = first_lanes(builder, builder.sub(left, done), ROW_LANES)
            work(builder, Columns(rows, [builder.add(first, done)], mask, gathered))

    with builder.if_else(builder.icmp_signed("==", rows.step, WORD(1))) as (dense, sparse):
        with dense:
            block = WORD(ROW_LANES * ROW_VECTORS)
            blocks = builder.sdiv(count, block)
            with cgutils.for_range(builder, blocks) as loop:
                first = builder.mul(loop.index, block)
                starts = [builder.add(first, WORD(i * ROW_LANES)) for i in range(ROW_VECTORS)]
                work(builder, Columns(rows, starts, None, False))
            singly(builder.mul(blocks, block), False)
        with sparse:
            singly(WORD(0), True)


def variables(builder: Any, values: list[Any]) -> list[Any]:
    """Places for values that change in a loop; they stay in registers."""
    return [cgutils.alloca_once_value(builder, value) for value in values]
