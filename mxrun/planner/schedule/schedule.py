"""Schedule with the lowest peak memory of several that are tried.

The candidates are the declared order; a list schedule, which always takes the ready unit that
leaves the fewest live bytes; a depth-first order; and the best of these with the units around its
peak in an optimal order. All schedules give the same bits: sums of gradients are explicit steps,
and random numbers belong to steps.

Needs: kernels. Provides: the same steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.graph.graph import Graph
from mxrun.passes.updates import hoist_updates
from mxrun.planner.inplace import inplace
from mxrun.planner.liveness import peak_bytes
from mxrun.planner.schedule.optimal_subschedule import optimal_subschedule
from mxrun.planner.schedule.ordering import LiveBytes, Order, Ordering, live_bytes_of
from mxrun.planner.schedule.peak_lower_bound import peak_lower_bound
from mxrun.planner.storage import Sharing, assign_storage

# Number of units around the peak that are ordered optimally, and positions of the peak among them.
_REGION = 14
_PLACES = (4, 8, 12)
# Maximum number of rounds; the peak may move after each.
_ROUNDS = 6

BEST, DECLARED, LIST, DEPTH_FIRST = "best", "declared", "list", "depth-first"
# Schedules that can be requested by name.
ORDERS = (DECLARED, LIST, DEPTH_FIRST)


@dataclass(frozen=True)
class Scheduled:
    """Graph whose steps are in the named order.

    least_bytes: lower bound on peak memory over all schedules, without concat in place and add-to.
    """

    graph: Graph
    order: str
    least_bytes: int


def schedule(graph: Graph, sharing: Sharing, requested: str = BEST) -> Scheduled:
    """Return the graph in the best order found, or in the order `requested` of ORDERS.

    On equal peak memory the declared order is preferred.
    """
    bound = peak_lower_bound(graph, sharing.in_place)
    declared = Scheduled(graph, DECLARED, bound)
    if requested == DECLARED:
        return declared
    best, least = declared, _peak(graph, sharing.in_place)
    if requested == BEST and least <= bound:
        return declared
    ordering = Ordering(graph, sharing.in_place)
    for name, order in _orders(ordering):
        ordered = hoist_updates(replace(graph, steps=ordering.steps(order)))
        if name == requested:
            return Scheduled(ordered, name, bound)
        peak = _peak(ordered, sharing.in_place)
        if peak < least:
            best, least = Scheduled(ordered, name, bound), peak
        if requested == BEST and least <= bound:
            break
    if best is declared:
        return declared
    # Concat in place and add-to, which the search does not count, may reverse the comparison.
    return min((declared, best), key=lambda each: peak_bytes(*assign_storage(each.graph, sharing)))


def _peak(graph: Graph, in_place: bool) -> int:
    return peak_bytes(graph, inplace(graph, in_place))


def _orders(ordering: Ordering) -> Iterator[tuple[str, Order]]:
    """Yield the candidates one by one, so that none is computed after the caller stops."""
    found: dict[str, Order] = {}
    for name, order_of in (
        (DECLARED, _declared_order),
        (LIST, _list_order),
        (DEPTH_FIRST, _depth_first),
    ):
        found[name] = order_of(ordering)
        yield name, found[name]
    best = min(found, key=lambda name: max(live_bytes_of(ordering, found[name]), default=0))
    yield f"{best}, exact around its peak", _with_best_regions(ordering, found[best])


def _declared_order(ordering: Ordering) -> Order:
    return range(len(ordering.units))


def _list_order(ordering: Ordering) -> Order:
    """Return the list schedule: the ready unit that leaves the fewest live bytes comes next.

    A unit that does not raise the peak so far costs nothing.
    """
    units, live = ordering.units, LiveBytes(ordering)
    waiting = [len(unit.waits_for) for unit in units]
    ready = [number for number, count in enumerate(waiting) if not count]
    order: list[int] = []
    peak = 0
    while ready:
        # All forward units come before the others.
        allowed = [n for n in ready if n < ordering.forward_units] or ready
        costs = []
        for number in allowed:
            during, after = live.during_and_after(units[number])
            costs.append((max(during, peak), after, number))
        *_, number = min(costs)
        ready.remove(number)
        peak = max(peak, live.run(units[number]))
        order.append(number)
        for follower in units[number].followers:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return order


def _depth_first(ordering: Ordering) -> Order:
    """Return the depth-first order: each unit directly after its dependencies, largest first."""
    units = ordering.units
    allocated = [unit.allocated_bytes for unit in units]
    order: list[int] = []
    done: set[int] = set()
    for end in range(len(units)):
        # The forward units come first; the others follow depth-first from the units without
        # followers.
        if units[end].followers and end >= ordering.forward_units:
            continue
        waiting = [end]
        while waiting:
            number = waiting[-1]
            before = [each for each in units[number].waits_for if each not in done]
            if before:
                waiting += sorted(before, key=lambda each: (allocated[each], -each))
                continue
            waiting.pop()
            if number not in done:
                done.add(number)
                order.append(number)
    return order


def _with_best_regions(ordering: Ordering, order: Order) -> Order:
    """Reorder the units around the peak optimally as long as that lowers the peak."""
    current = list(order)
    for _ in range(_ROUNDS):
        live = live_bytes_of(ordering, current)
        peak = live.index(max(live))
        starts = {max(0, min(peak - place, len(current) - _REGION)) for place in _PLACES}
        found = [
            optimal_subschedule(ordering, current, live, start, _REGION) for start in sorted(starts)
        ]
        least, better = min(found, key=lambda pair: pair[0])
        if least >= live[peak]:
            break
        current = better
    return current
