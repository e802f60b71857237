"""Optimal order of a few consecutive units, by dynamic programming over sets of executed units.

The live bytes after a set of units do not depend on the order in which they ran. Of all orders that
lead to the same set, only the one with the lowest peak is retained.
"""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.planner.schedule.ordering import LiveBytes, Order, Ordering, live_bytes_of

# Maximum number of sets examined; beyond it the order is left unchanged.
_MAX_SETS = 1000


def optimal_subschedule(
    ordering: Ordering, order: Order, live: Sequence[int], start: int, count: int
) -> tuple[int, list[int]]:
    """Put `count` units from position `start` on into the best order.

    live: live bytes by position in the given order. Return the peak memory of the changed
    schedule, and the schedule.
    """
    numbers = list(order[start : start + count])
    beyond = max((*live[:start], *live[start + count :]), default=0)
    found = _Region(ordering, order, start, numbers).best(beyond)
    changed = [*order[:start], *(found or numbers), *order[start + count :]]
    return max(live_bytes_of(ordering, changed)), changed


class _Region:
    def __init__(self, ordering: Ordering, order: Order, start: int, numbers: list[int]) -> None:
        self._ordering, self._units = ordering, [ordering.units[n] for n in numbers]
        self._numbers = numbers
        bits = {number: 1 << index for index, number in enumerate(numbers)}
        forward = sum(bits[number] for number in numbers if number < ordering.forward_units)
        self._waits = [
            sum(bits.get(each, 0) for each in unit.waits_for)
            | (forward if number >= ordering.forward_units else 0)
            for number, unit in zip(numbers, self._units, strict=True)
        ]
        # By root: bit set of the units of this region that touch it; then the roots touched later.
        self._touching: dict[int, int] = {}
        for index, unit in enumerate(self._units):
            for root in unit.touched:
                self._touching[root] = self._touching.get(root, 0) | 1 << index
        later = order[start + len(numbers) :]
        self._later = {root for number in later for root in ordering.units[number].touched}
        self._later |= ordering.lasting
        # By unit: those that touch one of its roots too, on which alone its bytes depend; what is
        # known of them, by unit and by which of these have run.
        self._related = [self._touching_any(unit.touched) for unit in self._units]
        self._known: dict[tuple[int, int], tuple[int, int]] = {}
        live = LiveBytes(ordering)
        for number in order[:start]:
            live.run(ordering.units[number])
        self._before = live.now

    def best(self, beyond: int) -> list[int] | None:
        """Return the units' numbers in the order with the lowest peak.

        None if there are more than `_MAX_SETS` sets. beyond: peak memory of the units outside the
        region; a peak below it costs nothing.
        """
        complete = (1 << len(self._units)) - 1
        reached: dict[int, tuple[int, int, tuple[int, ...]]] = {0: (beyond, self._before, ())}
        looked = 0
        for _ in self._units:
            following: dict[int, tuple[int, int, tuple[int, ...]]] = {}
            for done, (peak, now, path) in reached.items():
                looked += 1
                if looked > _MAX_SETS:
                    return None
                for index in range(len(self._units)):
                    bit = 1 << index
                    if done & bit or self._waits[index] & ~done:
                        continue
                    during, after = self._step(index, done, now)
                    high = max(peak, during)
                    known = following.get(done | bit)
                    if known is None or high < known[0]:
                        following[done | bit] = high, after, (*path, index)
            reached = following
        return [self._numbers[index] for index in reached[complete][2]]

    def _touching_any(self, roots: Sequence[int]) -> int:
        found = 0
        for root in roots:
            found |= self._touching[root]
        return found

    def _step(self, index: int, done: int, now: int) -> tuple[int, int]:
        """Return the live bytes while a unit runs after the set `done`, and after it."""
        run = (done | 1 << index) & self._related[index]
        found = self._known.get((index, run))
        if found is None:
            found = self._known[index, run] = self._ordering.during_and_after(
                self._units[index],
                0,
                lambda root: root not in self._later and not self._touching[root] & ~run,
            )
        return now + found[0], now + found[1]
