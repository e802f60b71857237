"""Code of the cumulative-sum intrinsics that are declared in `intrinsics`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mxrun.base.dataclass import dataclass
from mxrun.codegen import intrinsics
from mxrun.codegen.llvm_target import constant, lanes_of
from mxrun.codegen.sequential.intrinsic import typed
from mxrun.codegen.sequential.kinds import FLOAT32, FLOAT64, INT64, Pointer
from mxrun.codegen.sequential.lanes import (
    DOUBLE,
    FLOAT,
    broadcast,
    first_lanes,
    joined,
    load_vector,
    moved_up,
    reversed_lanes,
    store_vector,
    vector_place,
)
from mxrun.codegen.sequential.llvm_column import ROW_LANES, Columns, Rows, by_columns
from mxrun.codegen.sequential.llvm_control import WORD, counted_loop, variables

_FLOATS = Pointer(FLOAT32)

# Lanes of a vector along a line.
_LANES = 8


def _scan_columns(builder: Any, rows: Rows, output: Any, count: Any) -> None:
    """Generate code for neighbouring columns, in vectors."""
    wide, narrow = (lanes_of(kind, ROW_LANES) for kind in (DOUBLE, FLOAT))

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
        wide = lanes_of(DOUBLE, _LANES)
        at = builder.mul(number, WORD(_LANES))
        if self.onward:
            at = builder.add(self.position, at)
        else:
            at = builder.sub(builder.sub(self.position, at), WORD(_LANES - 1))
            mask = None if mask is None else reversed_lanes(builder, mask, _LANES)
        places = [vector_place(builder, data, at, _LANES) for data in (self.data, self.output)]
        sums = load_vector(builder, places[0], mask)
        sums = sums if self.onward else reversed_lanes(builder, sums, _LANES)
        group_sum = joined(builder, ir.IRBuilder.fadd, [builder.fpext(sums, wide)], _LANES)
        for distance in (1, 2, 4):
            sums = builder.fadd(sums, moved_up(builder, sums, distance, _LANES))
        before = builder.load(total)
        builder.store(builder.fadd(before, group_sum), total)
        sums = builder.fadd(sums, broadcast(builder, builder.fptrunc(before, FLOAT), _LANES))
        sums = sums if self.onward else reversed_lanes(builder, sums, _LANES)
        store_vector(builder, sums, places[1], mask, _LANES)


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
