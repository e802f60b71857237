"""Orders of a graph's steps, and the bytes that are alive in them, without making graphs.

A unit is a step, with the reorders that serve it alone. What a unit must wait for is who makes what
it reads and, where it overwrites something, everybody else who reads that. Of what backward steps
do, nothing comes before the last forward step.

Bytes are counted as the planner does, but for one thing: that a tensor lies in the place of another
is judged by their sizes and readers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mxrun.base.tensor import align
from mxrun.graph.graph import Graph, Step, StepKind, ValueId, forward_count

Order = Sequence[int]


@dataclass(frozen=True)
class Unit:
    """Steps that stay together.

    made: the memory that they take, by roots. touched: the roots of all that they read and make.
    within: pairs (read, made) of which the second may take the place of the first. scratch: bytes
    that the last step's kernel needs meanwhile. waits_for, followers: units by their numbers.
    """

    steps: tuple[Step, ...]
    made: tuple[ValueId, ...]
    touched: tuple[ValueId, ...]
    within: tuple[tuple[ValueId, ValueId], ...]
    scratch: int
    waits_for: frozenset[int]
    followers: tuple[int, ...]


class Ordering:
    """The units of a graph with kernels, in the order in which the graph has them."""

    def __init__(self, graph: Graph, in_place: bool, grouped: bool = True) -> None:
        """in_place: whether that counts. grouped: whether reorders stay with their readers."""
        self.graph = graph
        self._root = _roots(graph)
        given = {self._root[value] for value in graph.sources.values()}
        self.lasting = {self._root[value] for value in graph.results.values()}
        self.size = {
            root: 0 if root in given else align(graph.spec(root).nbytes) for root in set(self._root)
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
        """Bytes alive while a unit runs and when it has, of `now` before.

        over: whether nobody after the unit touches a root.
        """
        made = sum(self.size[root] for root in unit.made)
        gone = [root for root in unit.touched if over(root)]
        saved = sum(self.size[made] for read, made in unit.within if read in gone)
        during = now + made - saved + unit.scratch
        return during, now + made - sum(self.size[root] for root in gone)

    def steps(self, order: Order) -> tuple[Step, ...]:
        """The steps of units in an order."""
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
            made=tuple(value for value in written if self._root[value] == value),
            touched=tuple(self._touched(*written, *read)),
            within=tuple(self._fitting(steps[-1], hints)),
            scratch=0 if kernel is None else align(kernel.workspace_bytes),
            waits_for=frozenset(waits),
            followers=tuple(followers),
        )

    def _touched(self, *values: ValueId) -> Iterator[ValueId]:
        return (r for r in dict.fromkeys(self._root[v] for v in values) if self.size[r])

    def _fitting(
        self, step: Step, hints: Iterable[tuple[ValueId, ValueId]]
    ) -> Iterator[tuple[ValueId, ValueId]]:
        spec = self.graph.spec
        reads = [self._root[value] for value in step.reads]
        taken: set[ValueId] = set()
        for source, target in hints:
            root, made = self._root[source], self._root[target]
            alike = (spec(source).nbytes, spec(source).layout) == (
                spec(target).nbytes,
                spec(target).layout,
            )
            if alike and self.size[root] and reads.count(root) == 1 and made not in taken:
                taken.add(made)
                yield root, made


class Live:
    """The bytes alive while units run one after the other."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._left = dict(ordering.touches)
        self.now = 0

    def during_and_after(self, unit: Unit) -> tuple[int, int]:
        """Bytes alive while the unit runs, and when it has."""
        left, lasting = self._left, self._ordering.lasting
        return self._ordering.during_and_after(
            unit, self.now, lambda root: left[root] == 1 and root not in lasting
        )

    def run(self, unit: Unit) -> int:
        """Let the unit run; the bytes alive meanwhile."""
        during, self.now = self.during_and_after(unit)
        for root in unit.touched:
            self._left[root] -= 1
        return during


def bytes_alive(ordering: Ordering, order: Order) -> list[int]:
    """While each unit of an order runs."""
    live = Live(ordering)
    return [live.run(ordering.units[number]) for number in order]


def _roots(graph: Graph) -> list[ValueId]:
    """By value: whose memory it lies in at any rate, because it is a view or overwrites that."""
    root = list(range(len(graph.values)))
    for step in graph.steps:
        if step.kernel is not None and step.kernel.is_view:
            root[step.writes[0]] = root[step.reads[0]]
        for value in step.writes:
            if value in graph.mutations:
                root[value] = root[graph.mutations[value]]
    return root


def _groups(graph: Graph) -> list[list[Step]]:
    """Each step with the reorders before it of which it is the only reader."""
    readers: dict[ValueId, int] = dict.fromkeys(graph.results.values(), 2)
    for step in graph.steps:
        for value in step.reads:
            readers[value] = readers.get(value, 0) + 1
    waiting: dict[ValueId, list[Step]] = {}
    groups = []
    for step in graph.steps:
        group = [each for value in step.reads for each in waiting.pop(value, ())]
        group.append(step)
        made = step.writes
        if step.kind is StepKind.REORDER and all(readers.get(value) == 1 for value in made):
            waiting[made[0]] = group
        else:
            groups.append(group)
    return groups


def _waits(graph: Graph, groups: Sequence[Sequence[Step]]) -> list[set[int]]:
    """By unit, those that must come before it."""
    maker = {v: n for n, group in enumerate(groups) for step in group for v in step.writes}
    waits = [
        {maker[v] for step in group for v in step.reads if v in maker} - {number}
        for number, group in enumerate(groups)
    ]
    # Who reads one version of what is overwritten; a view's version is that of what it shows.
    version = list(range(len(graph.values)))
    readers: dict[ValueId, set[int]] = {}
    for number, group in enumerate(groups):
        for step in group:
            for value in step.reads:
                readers.setdefault(version[value], set()).add(number)
            if step.kernel is not None and step.kernel.is_view:
                version[step.writes[0]] = version[step.reads[0]]
    for number, group in enumerate(groups):
        for step in group:
            for value in step.writes:
                if value in graph.mutations:
                    waits[number] |= readers.get(graph.mutations[value], set()) - {number}
    return waits
