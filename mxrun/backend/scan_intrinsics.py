"""numba implementations of the cumulative-sum intrinsics that are declared in `jit`.

Imported only when a function must be compiled, like `numba_intrinsics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mxrun.backend.llvm_column import (
    DOUBLE,
    FLOAT,
    INDEX,
    ROW_LANES,
    WORD,
    Columns,
    Rows,
    broadcast,
    by_columns,
    constant,
    first_lanes,
    joined,
    load_vector,
    store_vector,
    variables,
    vector_place,
)

# Lanes of a vector along a line.
_LANES = 8


def _scan_columns(builder: Any, rows: Rows, output: Any, count: Any) -> None:
    """Generate code for neighbouring columns, in vectors."""
    wide = ir.VectorType(DOUBLE, ROW_LANES)
    narrow = ir.VectorType(FLOAT, ROW_LANES)

    def work(builder: Any, columns: Columns) -> None:
        totals = variables(builder, [constant(wide, 0.0)] * len(columns.starts))
        with cgutils.for_range(builder, rows.count) as loop:
            sums = []
            for total, value in zip(totals, columns.load(builder, loop.index), strict=True):
                after = builder.fadd(builder.load(total), builder.fpext(value, wide))
                builder.store(after, total)
                sums.append(builder.fptrunc(after, narrow))
            place = builder.gep(output, [builder.mul(loop.index, rows.stride)])
            columns.store(builder, place, sums)

    by_columns(builder, rows, count, work)


@dataclass(frozen=True)
class _Line:
    """Neighbouring elements of memory, forwards or backwards from `position`."""

    data: Any
    output: Any
    position: Any
    onward: bool

    def group(self, builder: Any, number: Any, mask: Any, total: Any) -> None:
        """Generate code for one vector: cumulative sums in float32 plus the float64 total."""
        kind, wide = ir.VectorType(FLOAT, _LANES), ir.VectorType(DOUBLE, _LANES)
        at = builder.mul(number, WORD(_LANES))
        if self.onward:
            at = builder.add(self.position, at)
        else:
            at = builder.sub(builder.sub(self.position, at), WORD(_LANES - 1))
            mask = None if mask is None else _reversed_lanes(builder, mask)
        places = [vector_place(builder, data, at, _LANES) for data in (self.data, self.output)]
        sums = load_vector(builder, places[0], mask, _LANES)
        sums = sums if self.onward else _reversed_lanes(builder, sums)
        group_sum = joined(builder, ir.IRBuilder.fadd, builder.fpext(sums, wide))
        for distance in (1, 2, 4):
            chosen = [_LANES + lane - distance if lane >= distance else 0 for lane in range(_LANES)]
            moved = builder.shuffle_vector(constant(kind, 0.0), sums, _lanes(chosen))
            sums = builder.fadd(sums, moved)
        before = builder.load(total)
        builder.store(builder.fadd(before, group_sum), total)
        sums = builder.fadd(sums, broadcast(builder, builder.fptrunc(before, FLOAT), _LANES))
        store_vector(
            builder, sums if self.onward else _reversed_lanes(builder, sums), places[1], mask
        )


def _lanes(chosen: Sequence[int]) -> Any:
    return ir.Constant(ir.VectorType(INDEX, len(chosen)), list(chosen))


def _reversed_lanes(builder: Any, vector: Any) -> Any:
    """Reverse the lanes."""
    return builder.shuffle_vector(vector, vector, _lanes(range(vector.type.count)[::-1]))


def _scan_line(builder: Any, line: _Line, count: Any, start: Any) -> None:
    """Generate code for full vectors, and for the rest under a mask."""
    (total,) = variables(builder, [start])
    groups = builder.sdiv(count, WORD(_LANES))
    with cgutils.for_range(builder, groups) as loop:
        line.group(builder, loop.index, None, total)
    rest = builder.sub(count, builder.mul(groups, WORD(_LANES)))
    with builder.if_then(builder.icmp_signed(">", rest, WORD(0))):
        line.group(builder, groups, first_lanes(builder, rest, _LANES), total)


@intrinsic
def scan_columns(
    typing_context: Any,
    output: Any,
    data: Any,
    position: Any,
    count: Any,
    stride: Any,
    rows: Any,
) -> Any:
    """Compute cumulative sums down neighbouring columns."""
    pointer, word = types.CPointer(types.float32), types.int64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        results, elements, first, size, down, lines = arguments
        block = Rows(builder.gep(elements, [first]), WORD(1), down, lines)
        _scan_columns(builder, block, builder.gep(results, [first]), size)
        return context.get_dummy_value()

    return types.void(pointer, pointer, word, word, word, word), generate


@intrinsic
def scan_line(
    typing_context: Any,
    output: Any,
    data: Any,
    position: Any,
    count: Any,
    step: Any,
    total: Any,
) -> Any:
    """Compute cumulative sums along a line."""
    pointer, word = types.CPointer(types.float32), types.int64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        results, elements, first, size, direction, start = arguments
        with builder.if_else(builder.icmp_signed(">", direction, WORD(0))) as (onward, back):
            with onward:
                _scan_line(builder, _Line(elements, results, first, True), size, start)
            with back:
                _scan_line(builder, _Line(elements, results, first, False), size, start)
        return context.get_dummy_value()

    return types.void(pointer, pointer, word, word, word, types.float64), generate


SCANS = {"scan_columns": scan_columns, "scan_line": scan_line}
