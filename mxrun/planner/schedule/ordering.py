"""Schedules of a graph's steps and their live bytes, computed without building graphs.

A unit is a step together with the reorders that only it reads. A unit depends on the units that
make what it reads and, if it overwrites memory, on all other readers of that memory. No unit of the
backward pass precedes the last forward unit.

Bytes are counted as the planner counts them, except for in-place sharing: here it is judged by the
sizes and readers of the two tensors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import align
from mxrun.graph.graph import Graph, Step, StepKind, ValueId, forward_count

Order = Sequence[int]


@dataclass(frozen=True)
class Unit:
    """Steps that are scheduled together.

    allocated_bytes: bytes of the memory that they allocate. touched: the roots of all that they
    read and write. within: pairs (read, allocated) of which the second may overwrite the first.
    scratch: workspace bytes of the last step's kernel. waits_for, followers: numbers of the units
    that must come before and after.
    """

    steps: tuple[Step, ...]
    allocated_bytes: int
    touched: tuple[ValueId, ...]
    within: tuple[tuple[ValueId, ValueId], ...]
    scratch: int
    waits_for: frozenset[int]
    followers: tuple[int, ...]


class Ordering:
    """Units of a graph with kernels, numbered in the graph's order."""

    def __init__(self, graph: Graph, in_place: bool, grouped: bool = True) -> None:
        """Build the units of `graph`.

        in_place: whether in-place sharing is counted. grouped: whether reorders stay with their
        readers.
        """
        self.graph = graph
        self._root = graph.roots()
        given = {self._root[value] for value in graph.sources.values()}
        self.lasting = {self._root[value] for value in graph.results.values()}
        self.size = {
            root: 0 if root in given else graph.block_bytes(root) for root in set(self._root)
        }
        groups = _groups(graph) if grouped else [[step] for step in graph.steps]
        waits = _waits(graph, groups)
        self.forward_units = forward_count([group[-1] for group in groups])
        followers: list[list[int]] = [[] for _ in groups]
        for number, before in enumerate(waits):
            for each in before:
                followers[each].append(number)
        self.units = [
            self._unit(steps, waits[number], followers[number], in_place)
            for number, steps in enumerate(groups)
        ]
        self.touches = dict.fromkeys(self.size, 0)
        for unit in self.units:
            for root in unit.touched:
                self.touches[root] += 1

    def during_and_after(
        self, unit: Unit, now: int, over: Callable[[ValueId], bool]
    ) -> tuple[int, int]:
        """Return the live bytes while a unit runs and after it, given `now` live bytes before.

        over: returns whether the unit is the last one to touch a root.
        """
        size = self.size
        freed = [root for root in unit.touched if over(root)]
        saved = sum([size[output] for read, output in unit.within if read in freed])
        during = now + unit.allocated_bytes - saved + unit.scratch
        return during, now + unit.allocated_bytes - sum([size[root] for root in freed])

    def steps(self, order: Order) -> tuple[Step, ...]:
        """Return the steps of the units in the given order."""
        return tuple(step for number in order for step in self.units[number].steps)

    def _unit(
        self, steps: Sequence[Step], waits: set[int], followers: Sequence[int], in_place: bool
    ) -> Unit:
        written = dict.fromkeys(v for step in steps for v in step.writes)
        read = dict.fromkeys(v for step in steps for v in step.reads)
        hints = steps[-1].in_place_hints if in_place else ()
        kernel = steps[-1].kernel
        return Unit(
            steps=tuple(steps),
            allocated_bytes=sum(self.size[root] for root in written if self._root[root] == root),
            touched=tuple(self._touched(*written, *read)),
            within=tuple(self._in_place_pairs(steps[-1], hints)),
            scratch=0 if kernel is None else align(kernel.workspace_bytes, self.graph.alignment),
            waits_for=frozenset(waits),
            followers=tuple(followers),
        )

    def _touched(self, *values: ValueId) -> Iterator[ValueId]:
        return (r for r in dict.fromkeys(self._root[v] for v in values) if self.size[r])

    def _in_place_pairs(
        self, step: Step, hints: Iterable[tuple[ValueId, ValueId]]
    ) -> Iterator[tuple[ValueId, ValueId]]:
        spec = self.graph.spec
        reads = [self._root[value] for value in step.reads]
        taken: set[ValueId] = set()
        for source, target in hints:
            root, output = self._root[source], self._root[target]
            alike = (spec(source).nbytes, spec(source).layout) == (
                spec(target).nbytes,
                spec(target).layout,
            )
            if alike and self.size[root] and reads.count(root) == 1 and output not in taken:
                taken.add(output)
                yield root, output


class LiveBytes:
    """Live bytes while units run one after the other."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._remaining = dict(ordering.touches)
        self.now = 0

    def during_and_after(self, unit: Unit) -> tuple[int, int]:
        """Return the live bytes while the unit runs, and after it."""
        remaining, lasting = self._remaining, self._ordering.lasting
        return self._ordering.during_and_after(
            unit, self.now, lambda root: remaining[root] == 1 and root not in lasting
        )

    def run(self, unit: Unit) -> int:
        """Execute the unit and return the live bytes while it runs."""
        during, self.now = self.during_and_after(unit)
        for root in unit.touched:
            self._remaining[root] -= 1
        return during


def live_bytes_of(ordering: Ordering, order: Order) -> list[int]:
    """Return the live bytes while each unit of a schedule runs."""
    live = LiveBytes(ordering)
    return [live.run(ordering.units[number]) for number in order]


def _groups(graph: Graph) -> list[list[Step]]:
    """Return each step together with the preceding reorders of which it is the only reader."""
    readers: dict[ValueId, int] = dict.fromkeys(graph.results.values(), 2)
    for step in graph.steps:
        for value in step.reads:
            readers[value] = readers.get(value, 0) + 1
    waiting: dict[ValueId, list[Step]] = {}
    groups = []
    for step in graph.steps:
        group = [each for value in step.reads for each in waiting.pop(value, ())]
        group.append(step)
        written = step.writes
        if step.kind is StepKind.REORDER and all(readers.get(value) == 1 for value in written):
            waiting[written[0]] = group
        else:
            groups.append(group)
    return groups


def _waits(graph: Graph, groups: Sequence[Sequence[Step]]) -> list[set[int]]:
    """Return for each unit the numbers of the units that must precede it."""
    maker = {v: n for n, group in enumerate(groups) for step in group for v in step.writes}
    waits = [
        {maker[v] for step in group for v in step.reads if v in maker} - {number}
        for number, group in enumerate(groups)
    ]
    # Readers by version of a value that is overwritten; a view has the version of its source.
    version = list(range(len(graph.values)))
    readers: dict[ValueId, set[int]] = {}
    for number, group in enumerate(groups):
        for step in group:
            for value in step.reads:
                readers.setdefault(version[value], set()).add(number)
            if step.is_view:
                version[step.writes[0]] = version[step.reads[0]]
    for number, group in enumerate(groups):
        for step in group:
            for value in step.writes:
                if value in graph.mutations:
                    waits[number] |= readers.get(graph.mutations[value], set()) - {number}
    return waits
