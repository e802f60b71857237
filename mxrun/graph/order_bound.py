"""What no order of steps can do without.

While a unit runs, whatever one before it in every order has made for one that is after it in every
order must be there. The most that this comes to is a bound below the peak of any order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mxrun.graph.graph import Graph, ValueId
from mxrun.graph.ordering import Ordering, Unit

Flags = npt.NDArray[np.bool_]


def least_alive(graph: Graph, in_place: bool) -> int:
    """Bytes alive at the peak of any order, where memory is shared in place and not otherwise."""
    # Each step by itself: what a reorder reads may go before its reader runs.
    ordering = Ordering(graph, in_place, grouped=False)
    units = ordering.units
    if not units:
        return 0
    before = _before(ordering)
    alive = np.array([unit.scratch for unit in units], np.int64)
    touching: dict[ValueId, list[int]] = {}
    for number, unit in enumerate(units):
        for root in unit.touched:
            touching.setdefault(root, []).append(number)
    for root, numbers in touching.items():
        started, wanted = np.zeros(len(units), bool), np.zeros(len(units), bool)
        for number in numbers:
            # Of a unit's row, those before it; of its column, those after it.
            started |= before[:, number]
            wanted |= before[number]
        if root in ordering.lasting:
            wanted[:] = True
        there = started & wanted
        there[numbers] = True
        alive += ordering.size[root] * there
    saved = [_saved(ordering, unit) for unit in units]
    return int((alive - np.array(saved, np.int64)).max())


def _before(ordering: Ordering) -> Flags:
    """[a, b]: whether b comes before a in every order."""
    count = len(ordering.units)
    before = np.zeros((count, count), bool)
    # The units are in an order that is possible.
    for number, unit in enumerate(ordering.units):
        row = before[number]
        for each in unit.waits_for:
            row |= before[each]
            row[each] = True
        if number >= ordering.forward_units:
            row[: ordering.forward_units] = True
    return before


def _saved(ordering: Ordering, unit: Unit) -> int:
    """At most, what is made in the place of something else."""
    return sum(ordering.size[made] for _, made in unit.within)
