"""Sum over a row of float32 vectors, for the loops of compiled operators.

The elements are added in 64 lanes within blocks of a row, pairwise across lanes, and the blocks in
float64: the order depends on the row's length alone.
"""

from __future__ import annotations

from typing import Any

from mxrun.codegen.arguments import Arguments
from mxrun.codegen.jit import inlined
from mxrun.codegen.vectors import LANES, add_lanes, lanes, sum_lanes

# Elements of a row that are summed in float32.
_BLOCK = 2048
# Elements of one iteration: four sums whose additions do not depend on each other.
_STEP = 4 * LANES


@inlined
def row_sum(call: Arguments, at: int, columns: int, shift: Any, terms: Any) -> Any:
    """Return the float64 sum of a row's terms.

    terms(call, at, shift, count): returns a vector of them.
    """
    total = 0.0
    for first in range(0, columns, _BLOCK):
        here, count = at + first, min(columns - first, _BLOCK)
        steps, full = count // _STEP * _STEP, count // LANES * LANES
        a, b, c, d = lanes(0.0), lanes(0.0), lanes(0.0), lanes(0.0)
        for j in range(here, here + steps, _STEP):
            a = add_lanes(a, terms(call, j, shift, LANES))
            b = add_lanes(b, terms(call, j + LANES, shift, LANES))
            c = add_lanes(c, terms(call, j + 2 * LANES, shift, LANES))
            d = add_lanes(d, terms(call, j + 3 * LANES, shift, LANES))
        for j in range(here + steps, here + full, LANES):
            a = add_lanes(a, terms(call, j, shift, LANES))
        total += sum_lanes(add_lanes(add_lanes(a, b), add_lanes(c, d)), LANES)
        if full < count:
            rest = count - full
            total += sum_lanes(terms(call, here + full, shift, rest), rest)
    return total
