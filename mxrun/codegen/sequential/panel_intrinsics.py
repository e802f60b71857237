"""Code of the intrinsics for products of a few rows with a panel of a matrix.

All sums of the result stay in registers. For each number of rows there is a loop of its own, in
which every vector of the panel is loaded once and every element of the rows is broadcast from
memory.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir

from mxrun.codegen import vectors
from mxrun.codegen.llvm_bfloat16 import widened
from mxrun.codegen.llvm_target import call_function
from mxrun.codegen.sequential.arithmetic import Untyped
from mxrun.codegen.sequential.intrinsic import Intrinsic, number, operand_of
from mxrun.codegen.sequential.kinds import (
    BFLOAT16,
    FLOAT32,
    FLOATS,
    INT64,
    NOTHING,
    Operand,
    Pointer,
)
from mxrun.codegen.sequential.llvm_column import broadcast, first_lanes
from mxrun.codegen.sequential.product_intrinsics import multiply_pairs
from mxrun.codegen.vectors import LANES, PANEL_COLUMNS, PANEL_ROWS

_WORD, _INDEX, _BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
_VECTORS = PANEL_COLUMNS // LANES
# Rows that one address serves, by x86's addressing modes base, base + step and base + 2 step.
_ROWS_PER_BASE = 3
_ALIGNED = _INDEX(1)


def _multiply(
    are_pairs: bool,
    builder: Any,
    output: Operand,
    at: Operand,
    stride: Operand,
    rows: Operand,
    left: Operand,
    position: Operand,
    step: Operand,
    inner: Operand,
    panel: Operand,
    start: Operand,
    columns: Operand,
) -> Operand:
    """Generate a switch over the number of rows, and a loop for each."""
    kind = number(left).kind
    elements = (BFLOAT16,) if are_pairs else (FLOAT32, BFLOAT16)
    if not isinstance(kind, Pointer) or kind.element not in elements:
        raise Untyped(f"there are no rows in the memory of {kind}")
    floats = Pointer(FLOAT32)
    result = builder.gep(operand_of(builder, output, floats), [operand_of(builder, at, INT64)])
    matrix = builder.gep(operand_of(builder, panel, floats), [operand_of(builder, start, INT64)])
    first = builder.gep(number(left).code, [operand_of(builder, position, INT64)])
    sizes = [operand_of(builder, each, INT64) for each in (stride, rows, step, inner, columns)]
    _Product(builder, result, first, matrix, sizes, are_pairs).generate()
    return NOTHING


class _Product:
    """Generator of one call's code."""

    def __init__(
        self,
        builder: Any,
        output: Any,
        left: Any,
        panel: Any,
        sizes: list[Any],
        are_pairs: bool,
    ) -> None:
        """Take the addresses, and the values of stride, rows, step, inner and columns."""
        self.builder = builder
        self.stride, self.rows, step, inner, columns = sizes
        self.inner = inner
        self.output, self.panel = output, panel
        narrow = not isinstance(left.type.pointee, ir.FloatType)
        self.step = builder.mul(step, _WORD(2 if narrow else 4))
        self.left, self.are_pairs = builder.bitcast(left, _BYTE), are_pairs
        # A pair of bfloat16 elements is read as one float32.
        self.element = FLOAT32.code if are_pairs else left.type.pointee
        self.size = 2 if narrow and not are_pairs else 4
        if are_pairs:
            self.inner = builder.lshr(inner, _WORD(1))
        counts = [builder.sub(columns, _WORD(vector * LANES)) for vector in range(_VECTORS)]
        self.masks = [first_lanes(builder, count, LANES) for count in counts]

    def generate(self) -> None:
        """Generate all loops."""
        builder = self.builder
        after = builder.append_basic_block("multiplied")
        blocks = [builder.append_basic_block(f"rows{n}") for n in range(1, PANEL_ROWS + 1)]
        choice = builder.switch(self.rows, after)
        for count, block in enumerate(blocks, 1):
            choice.add_case(_WORD(count), block)
            builder.position_at_end(block)
            self._loop(count)
            builder.branch(after)
        builder.position_at_end(after)

    def _places(self, count: int) -> list[Any]:
        """Return the addresses of the result's vectors, row by row."""
        builder, found = self.builder, []
        for row in range(count):
            first = builder.gep(self.output, [builder.mul(self.stride, _WORD(row))])
            for vector in range(_VECTORS):
                place = builder.gep(first, [_WORD(vector * LANES)])
                found.append(builder.bitcast(place, FLOATS.code.as_pointer()))
        return found

    def _loop(self, count: int) -> None:
        """Generate the sums of `count` rows."""
        builder, kind = self.builder, FLOATS.code
        places, rest = self._places(count), ir.Constant(kind, None)
        masks = [self.masks[index % _VECTORS] for index in range(len(places))]
        load, store = (f"llvm.masked.{name}.v{LANES}f32.p0" for name in ("load", "store"))
        sums = [
            call_function(builder, load, kind, [place, _ALIGNED, mask, rest])
            for place, mask in zip(places, masks, strict=True)
        ]
        bases = [
            builder.gep(self.left, [builder.mul(self.step, _WORD(row))])
            for row in range(0, count, _ROWS_PER_BASE)
        ]
        before = builder.block
        test, body, after = (builder.append_basic_block(name) for name in ("test", "body", "sums"))
        builder.branch(test)
        builder.position_at_end(test)
        index = builder.phi(_WORD)
        totals = [builder.phi(kind) for _ in sums]
        moving = [builder.phi(_BYTE) for _ in bases]
        panel = builder.phi(self.panel.type)
        phis = [index, panel, *totals, *moving]
        for phi, first in zip(phis, [_WORD(0), self.panel, *sums, *bases], strict=True):
            phi.add_incoming(first, before)
        builder.cbranch(builder.icmp_signed("<", index, self.inner), body, after)
        builder.position_at_end(body)
        results = self._added(totals, moving, panel, count)
        following = [
            builder.add(index, _WORD(1)),
            builder.gep(panel, [_WORD(PANEL_COLUMNS)]),
            *results,
            *(builder.gep(base, [_WORD(self.size)]) for base in moving),
        ]
        for phi, last in zip(phis, following, strict=True):
            phi.add_incoming(last, builder.block)
        builder.branch(test)
        builder.position_at_end(after)
        for total, place, mask in zip(totals, places, masks, strict=True):
            call_function(builder, store, ir.VoidType(), [total, place, _ALIGNED, mask])

    def _added(self, totals: list[Any], bases: list[Any], panel: Any, count: int) -> list[Any]:
        """Return the sums after one element of each row."""
        builder, kind = self.builder, FLOATS.code
        columns = [
            builder.load(
                builder.bitcast(builder.gep(panel, [_WORD(v * LANES)]), kind.as_pointer()), align=4
            )
            for v in range(_VECTORS)
        ]
        results = []
        for row in range(count):
            place = bases[row // _ROWS_PER_BASE]
            for _ in range(row % _ROWS_PER_BASE):
                place = builder.gep(place, [self.step])
            single = builder.load(builder.bitcast(place, self.element.as_pointer()), align=2)
            if not isinstance(self.element, ir.FloatType):
                single = widened(builder, single)
            factor = broadcast(builder, single, LANES)
            for v, column in enumerate(columns):
                total = totals[row * _VECTORS + v]
                if self.are_pairs:
                    results.append(multiply_pairs(builder, total, factor, column))
                else:
                    given = [factor, column, total]
                    results.append(call_function(builder, f"llvm.fma.v{LANES}f32", kind, given))
        return results


PANELS: dict[Any, Intrinsic] = {
    vectors.multiply_panel: partial(_multiply, False),
    vectors.multiply_pair_panel: partial(_multiply, True),
}
