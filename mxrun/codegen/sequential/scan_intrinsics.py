"""Code of the cumulative-sum intrinsics that are declared in `intrinsics`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from mxrun.codegen import intrinsics
from mxrun.codegen.llvm_bfloat16 import constant
from mxrun.codegen.sequential.intrinsic import typed
from mxrun.codegen.sequential.kinds import FLOAT32, FLOAT64, INT64, Pointer
from mxrun.codegen.sequential.llvm_column import (
    DOUBLE,
    FLOAT,
    INDEX,
    ROW_LANES,
    Columns,
    Rows,
    broadcast,
    by_columns,
    first_lanes,
    joined,
    load_vector,
    store_vector,
    vector_place,
)
from mxrun.codegen.sequential.llvm_control import WORD, counted_loop, variables

_FLOATS = Pointer(FLOAT32)

# Lanes of a vector along a line.
_LANES = 8


def _scan_columns(builder: Any, rows: Rows, output: Any, count: Any) -> None:
    """Generate code for neighbouring columns, in vectors."""
    wide = ir.VectorType(DOUBLE, ROW_LANES)
    narrow = ir.VectorType(FLOAT, ROW_LANES)

    def work(builder: Any, columns: Columns) -> None:
        totals = variables(builder, [constant(wide, 0.0)] * len(columns.starts))
        with counted_loop(builder, rows.count) as index:
            sums = []
            for total, value in zip(totals, columns.load(builder, index), strict=True):
                after = builder.fadd(builder.load(total), builder.fpext(value, wide))
                builder.store(after, total)
                sums.append(builder.fptrunc(after, narrow))
            place = builder.gep(output, [builder.mul(index, rows.stride)])
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
    with counted_loop(builder, groups) as index:
        line.group(builder, index, None, total)
    rest = builder.sub(count, builder.mul(groups, WORD(_LANES)))
    with builder.if_then(builder.icmp_signed(">", rest, WORD(0))):
        line.group(builder, groups, first_lanes(builder, rest, _LANES), total)


@typed(None, _FLOATS, _FLOATS, *[INT64] * 4)
def scan_columns(
    builder: Any, output: Any, data: Any, position: Any, count: Any, stride: Any, rows: Any
) -> None:
    """Compute cumulative sums down neighbouring columns."""
    block = Rows(builder.gep(data, [position]), WORD(1), stride, rows)
    _scan_columns(builder, block, builder.gep(output, [position]), count)


@typed(None, _FLOATS, _FLOATS, *[INT64] * 3, FLOAT64)
def scan_line(
    builder: Any, output: Any, data: Any, position: Any, count: Any, step: Any, total: Any
) -> None:
    """Compute cumulative sums along a line."""
    with builder.if_else(builder.icmp_signed(">", step, WORD(0))) as (onward, back):
        with onward:
            _scan_line(builder, _Line(data, output, position, True), count, total)
        with back:
            _scan_line(builder, _Line(data, output, position, False), count, total)


SCANS = {intrinsics.scan_columns: scan_columns, intrinsics.scan_line: scan_line}
