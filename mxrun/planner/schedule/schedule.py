"""The order of steps in which the fewest bytes are alive at once, of several that are tried.

These are the order that is given; a list order, which goes on with whatever leaves the fewest bytes
of what may go on; a depth-first order, which finishes what it began; and the best of them with the
few steps around its peak in the best order that they can have. Any order gives the same bits: sums
of gradients are steps of their own, and random numbers belong to steps.

Needs: kernels. Provides: the same steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mxrun.graph.graph import Graph
from mxrun.passes.updates import eager
from mxrun.planner.inplace import inplace
from mxrun.planner.liveness import peak_bytes
from mxrun.planner.schedule.optimal_subschedule import optimal_subschedule
from mxrun.planner.schedule.ordering import Live, Order, Ordering, bytes_alive
from mxrun.planner.schedule.peak_lower_bound import peak_lower_bound
from mxrun.planner.storage import Sharing, shared

# Of units around the peak that are put into the best order: how many, and where the peak is.
_REGION = 14
_PLACES = (4, 8, 12)
# How often the peak may move before the rest is left as it is.
_ROUNDS = 6

BEST, DECLARED, LIST, DEPTH_FIRST = "best", "declared", "list", "depth-first"
# Orders that can be asked for.
ORDERS = (DECLARED, LIST, DEPTH_FIRST)


@dataclass(frozen=True)
class Scheduled:
    """A graph whose steps are in an order of that name.

    least_bytes: what no order of them can do without, unless tensors are joined or added to.
    """

    graph: Graph
    order: str
    least_bytes: int


def schedule(graph: Graph, sharing: Sharing, wanted: str = BEST) -> Scheduled:
    """The steps in the best order found, of equals the given one; or in one of ORDERS."""
    bound = peak_lower_bound(graph, sharing.in_place)
    declared = Scheduled(graph, DECLARED, bound)
    if wanted == DECLARED:
        return declared
    best, least = declared, _peak(graph, sharing.in_place)
    if wanted == BEST and least <= bound:
        return declared
    ordering = Ordering(graph, sharing.in_place)
    for name, order in _orders(ordering):
        ordered = eager(replace(graph, steps=ordering.steps(order)))
        if name == wanted:
            return Scheduled(ordered, name, bound)
        peak = _peak(ordered, sharing.in_place)
        if peak < least:
            best, least = Scheduled(ordered, name, bound), peak
        if wanted == BEST and least <= bound:
            break
    if best is declared:
        return declared
    # What is joined or added to may turn it round.
    return min((declared, best), key=lambda each: peak_bytes(*shared(each.graph, sharing)))


def _peak(graph: Graph, in_place: bool) -> int:
    return peak_bytes(graph, inplace(graph, in_place))


def _orders(ordering: Ordering) -> Iterator[tuple[str, Order]]:
    """One by one: whoever has what it wants asks for no more."""
    found: dict[str, Order] = {}
    for name, made in ((DECLARED, _given), (LIST, _list_order), (DEPTH_FIRST, _depth_first)):
        found[name] = made(ordering)
        yield name, found[name]
    best = min(found, key=lambda name: max(bytes_alive(ordering, found[name]), default=0))
    yield f"{best}, exact around its peak", _with_best_regions(ordering, found[best])


def _given(ordering: Ordering) -> Order:
    return range(len(ordering.units))


def _list_order(ordering: Ordering) -> Order:
    """Of the units that may come next always the one that leaves the fewest bytes.

    What stays below the peak so far costs nothing.
    """
    units, live = ordering.units, Live(ordering)
    waiting = [len(unit.waits_for) for unit in units]
    ready = [number for number, count in enumerate(waiting) if not count]
    order: list[int] = []
    peak = 0
    while ready:
        # What is not forward comes after all that is.
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
    """Each unit after all that it waits for, those first that make most."""
    units, size = ordering.units, ordering.size
    made = [sum(size[root] for root in unit.made) for unit in units]
    order: list[int] = []
    done: set[int] = set()
    for end in range(len(units)):
        # The forward units are the first; the others follow from their ends.
        if units[end].followers and end >= ordering.forward_units:
            continue
        waiting = [end]
        while waiting:
            number = waiting[-1]
            before = [each for each in units[number].waits_for if each not in done]
            if before:
                waiting += sorted(before, key=lambda each: (made[each], -each))
                continue
            waiting.pop()
            if number not in done:
                done.add(number)
                order.append(number)
    return order


def _with_best_regions(ordering: Ordering, order: Order) -> Order:
    """The order with the units around its peak put right, as long as that lowers the peak."""
    current = list(order)
    for _ in range(_ROUNDS):
        alive = bytes_alive(ordering, current)
        peak = alive.index(max(alive))
        starts = {max(0, min(peak - place, len(current) - _REGION)) for place in _PLACES}
        found = [
            optimal_subschedule(ordering, current, alive, start, _REGION)
            for start in sorted(starts)
        ]
        least, better = min(found, key=lambda pair: pair[0])
        if least >= alive[peak]:
            break
        current = better
    return current
