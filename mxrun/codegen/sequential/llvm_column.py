"""LLVM code for vectors of neighbouring columns, for reduction_intrinsics and scan_intrinsics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.codegen.sequential.lanes import (
    first_lanes,
    gather_vector,
    load_vector,
    places_apart,
    store_vector,
    vector_place,
)
from mxrun.codegen.sequential.llvm_control import WORD, counted_loop

# Lanes of a vector of a row, and number of such vectors processed side by side.
ROW_LANES = 16
ROW_VECTORS = 4
# Elements of a cache line.
LINE = 16


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
            return [self._gather(builder, place) for place in places]
        places = [builder.add(offset, start) for start in self.starts]
        return [self.read(builder, self.rows.data, place) for place in places]

    def _gather(self, builder: Any, position: Any) -> Any:
        data, step = self.rows.data, self.rows.step
        places = places_apart(builder, data, position, step, ROW_LANES)
        return gather_vector(builder, places, self.mask)

    def read(self, builder: Any, pointer: Any, position: Any) -> Any:
        """Load one vector from contiguous memory."""
        place = vector_place(builder, pointer, position, ROW_LANES)
        return load_vector(builder, place, self.mask)

    def store(self, builder: Any, pointer: Any, vectors: list[Any]) -> None:
        """Store one vector for each start."""
        for start, vector in zip(self.starts, vectors, strict=True):
            place = vector_place(builder, pointer, start, ROW_LANES)
            store_vector(builder, vector, place, self.mask)


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
