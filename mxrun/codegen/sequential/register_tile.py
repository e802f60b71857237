"""Code of products of small matrices whose sums stay in vector registers.

A tile has some rows and vectors of columns. For each term every vector of the right factor is
loaded once, and one element of each row of the left factor is broadcast from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir

from mxrun.base.dataclass import dataclass
from mxrun.codegen.llvm_bfloat16 import widened
from mxrun.codegen.llvm_target import call_function, multiply_add
from mxrun.codegen.sequential.kinds import FLOAT32, FLOATS
from mxrun.codegen.sequential.lanes import broadcast, load_vector, vector_place
from mxrun.codegen.sequential.llvm_control import WORD
from mxrun.codegen.target import is_card
from mxrun.codegen.vectors import LANES

# Rows that one address serves, by x86's addressing modes base, base + step and base + 2 step.
_ROWS_PER_BASE = 3
_BYTE = ir.IntType(8).as_pointer()

Step: TypeAlias = Callable[[Any, Any, Any, Any], Any]
"""(builder, sums, a broadcast element, a vector) -> the sums with the product added."""


def multiply_floats(builder: Any, total: Any, element: Any, vector: Any) -> Any:
    """Add to float32 sums the products of float32 vectors."""
    return multiply_add(builder, element, vector, total)


def multiply_pairs(builder: Any, total: Any, element: Any, vector: Any) -> Any:
    """Add to float32 sums the products of bfloat16 pairs, given as float32 vectors."""
    halves = ir.VectorType(_BFloat16(), 2 * LANES)
    given = [total, *(builder.bitcast(each, halves) for each in (element, vector))]
    return call_function(builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS.code, given)


class _BFloat16(ir.Type):  # type: ignore[misc]
    """LLVM's type bfloat, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


@dataclass(frozen=True)
class TileFactors:
    """Factors of a tile's product.

    left: address of the first element; row_bytes, inner_bytes: from row to row, and from term to
    term; element: LLVM type, float32 or the bits of bfloat16. right: address of the first vector's
    float32 elements, the next term's are `right_step` later. inner: number of terms.
    """

    left: Any
    row_bytes: Any
    inner_bytes: Any
    element: Any
    right: Any
    right_step: Any
    inner: Any
    mask: Any | None = None


def vector_at(builder: Any, pointer: Any, position: Any) -> Any:
    """Return the address of the vector that begins at an element."""
    return vector_place(builder, pointer, position, LANES)


def tile_sums(
    builder: Any, factors: TileFactors, rows: int, sums: Sequence[Any], step: Step
) -> list[Any]:
    """Generate the loop over the terms, added in their order to sums; return the new sums.

    sums: the vectors of a tile, row by row.
    """
    bases = [
        builder.gep(
            builder.bitcast(factors.left, _BYTE), [builder.mul(factors.row_bytes, WORD(row))]
        )
        for row in range(0, rows, _ROWS_PER_BASE)
    ]
    before = builder.block
    test, body, after = (builder.append_basic_block(name) for name in ("test", "terms", "sums"))
    builder.branch(test)
    builder.position_at_end(test)
    firsts = [WORD(0), factors.right, *sums, *bases]
    index, right, *moving = phis = [builder.phi(first.type) for first in firsts]
    for phi, first in zip(phis, firsts, strict=True):
        phi.add_incoming(first, before)
    totals, lefts = moving[: len(sums)], moving[len(sums) :]
    builder.cbranch(builder.icmp_signed("<", index, factors.inner), body, after)
    builder.position_at_end(body)
    following = [
        builder.add(index, WORD(1), flags=["nsw"]),
        builder.gep(right, [factors.right_step]),
        *_with_term(builder, factors, lefts, right, totals, len(sums) // rows, step),
        *(builder.gep(base, [factors.inner_bytes]) for base in lefts),
    ]
    for phi, last in zip(phis, following, strict=True):
        phi.add_incoming(last, builder.block)
    builder.branch(test)
    builder.position_at_end(after)
    return totals


def _with_term(
    builder: Any,
    factors: TileFactors,
    lefts: Sequence[Any],
    right: Any,
    totals: Sequence[Any],
    vectors: int,
    step: Step,
) -> list[Any]:
    """Return the sums after one element of each row."""
    columns = [
        load_vector(builder, vector_at(builder, right, WORD(v * LANES)), factors.mask)
        for v in range(vectors)
    ]
    results = []
    for row in range(len(totals) // vectors):
        place = lefts[row // _ROWS_PER_BASE]
        for _ in range(row % _ROWS_PER_BASE):
            place = builder.gep(place, [factors.row_bytes])
        # Pairs of bfloat16, which cards do not have, begin at even addresses.
        align = None if is_card() else 2
        single = builder.load(builder.bitcast(place, factors.element.as_pointer()), align=align)
        if factors.element != FLOAT32.code:
            single = widened(builder, single)
        element = broadcast(builder, single, LANES)
        for v, column in enumerate(columns):
            results.append(step(builder, totals[row * vectors + v], element, column))
    return results
