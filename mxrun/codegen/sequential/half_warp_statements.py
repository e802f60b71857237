"""Statements on a graphics card, where 16 threads, half a warp, run a task together.

All of them run all statements, with equal scalars, and the first one stores elements. The
iterations of a loop over `each` are divided between them where that is possible: where its body,
with all that it calls, is of scalars alone, and has no such loop within, which then has the
threads. In such a loop they differ, so that each stores its own elements. A body that calls an
intrinsic of vectors, or one that all threads must call together, keeps them together: its
iterations are in order. Which one a loop is, is only known after its body was generated: the code
is then generated again.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from mxrun.codegen import intrinsics, products, vectors
from mxrun.codegen.sequential import half_warp
from mxrun.codegen.sequential.arithmetic import Untyped
from mxrun.codegen.sequential.basic_intrinsics import SCALAR
from mxrun.codegen.sequential.intrinsic import Intrinsic
from mxrun.codegen.sequential.kinds import INT64, Operand
from mxrun.codegen.sequential.lowering import Statements
from mxrun.codegen.vectors import LANES


def _refused(declared: Any) -> Intrinsic:
    def refuse(builder: Any, *arguments: Operand) -> Operand:
        raise Untyped(f"graphics cards have no {declared.__name__}")

    return refuse


# A processor's instructions, and words by which its threads wait for each other.
REFUSED = {
    each: _refused(each)
    for each in (
        intrinsics.call_address,
        intrinsics.exchange_word,
        intrinsics.fetch_add,
        intrinsics.load_word,
        intrinsics.spin,
        intrinsics.store_word,
        products.multiply_pairs,
        vectors.multiply_pair_panel,
    )
}


class HalfWarpStatements(Statements):
    """Generator of the code of half a warp.

    divided: number of the `each` loop whose iterations are divided between the threads, whose code
    is being generated; None in code that they run together.
    """

    divided: int | None = None
    _loops = 0

    def store(self, value: Any, place: Any) -> None:
        if self.divided is None:
            half_warp.store_scalar(self.builder, value, place)
        else:
            super().store(value, place)

    def independent(self, node: ast.For, start: Any, stop: Any, step: Any) -> None:
        number = self._loops
        self._loops += 1
        self._together()
        if number in self.known.in_order:
            super().independent(node, start, stop, step)
            return
        builder = self.builder
        first = builder.mul(half_warp.lane(builder, INT64.code), step)
        half_warp.wait(builder)
        self.divided = number
        own = builder.add(start, first), stop, builder.mul(step, INT64.code(LANES))
        super().independent(node, *own)
        self.divided = None
        half_warp.wait(builder)

    def generated(
        self,
        declared: Any,
        intrinsic: Intrinsic,
        arguments: Sequence[Operand],
        named: Mapping[str, Operand],
    ) -> Operand:
        if declared not in SCALAR:
            self._together()
        return super().generated(declared, intrinsic, arguments, named)

    def _together(self) -> None:
        """Have the threads run the code together, by generating it again if they do not."""
        if self.divided is not None:
            self.known.in_order.add(self.divided)
            self.is_complete, self.divided = False, None
