"""What no order of steps can do without.

While a unit runs, whatever one before it in every order has made for one that is after it in every
order must be there. The most that this comes to is a bound below the peak of any order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mxrun.graph.graph import Graph, ValueId
from mxrun.planner.schedule.ordering import Ordering, Unit

Numbers = npt.NDArray[np.intp]


def peak_lower_bound(graph: Graph, in_place: bool) -> int:
    """Bytes alive at the peak of any order, where memory is shared in place and not otherwise."""
    # Each step by itself: what a reorder reads may go before its reader runs.
    ordering = Ordering(graph, in_place, grouped=False)
    units = ordering.units
    if not units:
        return 0
    before = _before(ordering)
    after = _after(ordering)
    alive = np.array([unit.scratch - _saved(ordering, unit) for unit in units], np.int64)
    touching: dict[ValueId, list[int]] = {}
    for number, unit in enumerate(units):
        for root in unit.touched:
            touching.setdefault(root, []).append(number)
    everything = (1 << len(units)) - 1
    for root, numbers in touching.items():
        started = wanted = there = 0
        for number in numbers:
            started |= after[number]
            wanted |= before[number]
            there |= 1 << number
        if root in ordering.lasting:
            wanted = everything
        alive[_numbers(there | started & wanted)] += ordering.size[root]
    return int(alive.max())


def _before(ordering: Ordering) -> list[int]:
    """For each unit those that come before it in every order: bit b for unit b."""
    forward = (1 << ordering.forward_units) - 1
    before: list[int] = []
    # The units are in an order that is possible.
    for number, unit in enumerate(ordering.units):
        row = forward if number >= ordering.forward_units else 0
        for each in unit.waits_for:
            row |= before[each] | 1 << each
        before.append(row)
    return before


def _after(ordering: Ordering) -> list[int]:
    """For each unit those that come after it in every order."""
    units = ordering.units
    others = (1 << len(units)) - (1 << ordering.forward_units)
    after = [0] * len(units)
    for number in reversed(range(len(units))):
        row = others if number < ordering.forward_units else 0
        for each in units[number].followers:
            row |= after[each] | 1 << each
        after[number] = row
    return after


def _numbers(flags: int) -> Numbers:
    """The numbers of the bits that are set."""
    found = np.frombuffer(flags.to_bytes(-(-flags.bit_length() // 8), "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(found, bitorder="little"))


def _saved(ordering: Ordering, unit: Unit) -> int:
    """At most, what is made in the place of something else."""
    return sum(ordering.size[made] for _, made in unit.within)
