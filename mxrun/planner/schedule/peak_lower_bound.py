"""Lower bound on peak memory over all schedules.

While a unit runs, every tensor must be live whose producer precedes the unit in every schedule and
one of whose readers follows it in every schedule. The maximum of these bytes over all units bounds
the peak of any schedule from below.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mxrun.graph.graph import Graph, ValueId
from mxrun.planner.schedule.ordering import Ordering, Unit

Numbers = npt.NDArray[np.intp]


def peak_lower_bound(graph: Graph, in_place: bool) -> int:
    """Return the lower bound in bytes, with views and, if `in_place`, in-place sharing.

    Concat in place and add-to are not considered.
    """
    # Ungrouped: the input of a reorder may be freed before the reorder's reader runs.
    ordering = Ordering(graph, in_place, grouped=False)
    units = ordering.units
    if not units:
        return 0
    before = _before(ordering)
    after = _after(ordering)
    live = np.array([unit.scratch - _saved(ordering, unit) for unit in units], np.int64)
    touching: dict[ValueId, list[int]] = {}
    for number, unit in enumerate(units):
        for root in unit.touched:
            touching.setdefault(root, []).append(number)
    everything = (1 << len(units)) - 1
    for root, numbers in touching.items():
        started = needed = running = 0
        for number in numbers:
            started |= after[number]
            needed |= before[number]
            running |= 1 << number
        if root in ordering.lasting:
            needed = everything
        live[_numbers(running | started & needed)] += ordering.size[root]
    return int(live.max())


def _before(ordering: Ordering) -> list[int]:
    """Return for each unit the units before it in every schedule, as a bit set by number."""
    forward = (1 << ordering.forward_units) - 1
    before: list[int] = []
    # The units are numbered in a valid order.
    for number, unit in enumerate(ordering.units):
        row = forward if number >= ordering.forward_units else 0
        for each in unit.waits_for:
            row |= before[each] | 1 << each
        before.append(row)
    return before


def _after(ordering: Ordering) -> list[int]:
    """Return for each unit the set of units after it in every schedule."""
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
    """Return the positions of the set bits."""
    found = np.frombuffer(flags.to_bytes(-(-flags.bit_length() // 8), "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(found, bitorder="little"))


def _saved(ordering: Ordering, unit: Unit) -> int:
    """Return the maximum of bytes that the unit's outputs save by overwriting inputs."""
    return sum(ordering.size[output] for _, output in unit.within)
