"""Which tensors share storage: views, mutated states, parts and the in-place hints that hold.

A hint is taken when the input is read for the last time by this very step, has the size of the
output, and is neither given from outside nor kept as a result. Everything refused is logged with
its reason.

Needs: kernels, and the parts that lie within others. Provides: the storage of every value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mxrun.graph.graph import Graph, Step, ValueId
from mxrun.graph.naming import in_words
from mxrun.planner.concat_in_place import BufferSlice, BufferSlices
from mxrun.planner.hint import Hint


@dataclass(frozen=True)
class Storage:
    """`root[value]` is the value whose memory `value` lies in (itself for most).

    parts: of those that are only a part of that memory, their place in it.
    """

    root: Mapping[ValueId, ValueId]
    hints: tuple[Hint, ...]
    parts: Mapping[ValueId, BufferSlice] = field(default_factory=dict)


def inplace(
    graph: Graph,
    enabled: bool = True,
    joined: BufferSlices | None = None,
    decided: Iterable[Hint] = (),
) -> Storage:
    """Decide the storage of every value; unless `enabled` nothing takes another's place.

    joined: parts of others. decided: what was logged before.
    """
    joined = joined or BufferSlices()
    sharing = _Sharing(graph, joined.parts)
    hints = [*decided, *(hint for _, hint in joined.inputs)]
    for position, step in enumerate(graph.steps):
        if step.kernel is not None and step.kernel.is_view:
            sharing.join(step.reads[0], step.writes[0])
        for value in step.writes:
            if value in graph.mutations:
                sharing.join(graph.mutations[value], value)
        for source, target in step.in_place_hints:
            if target in graph.mutations:
                continue
            reason = "in-place is off"
            if enabled:
                reason = sharing.refusal(position, step, source, target)
            if not reason:
                sharing.join(source, target)
            names = (graph.values[source].name, graph.values[target].name)
            hints.append(Hint(step.name, *names, reason))
    return Storage(sharing.roots(), tuple(hints), joined.parts)


class _Sharing:
    def __init__(self, graph: Graph, parts: Mapping[ValueId, BufferSlice]) -> None:
        self.graph, self.parts = graph, parts
        self.parent = list(range(len(graph.values)))
        self.producers = graph.producer()
        self.given = set(graph.sources.values())
        self.targets: set[ValueId] = set()
        self.last_read: dict[ValueId, int] = {}
        for position, step in enumerate(graph.steps):
            for value in step.reads:
                self.last_read[value] = position
        # Reads of views count for their source, because they lie in its memory.
        for step in reversed(graph.steps):
            if step.kernel is not None and step.kernel.is_view:
                view = self.last_read.get(step.writes[0], -1)
                source = step.reads[0]
                self.last_read[source] = max(self.last_read[source], view)
        self.kept = {self._view_source(value) for value in graph.results.values()}
        for value, part in parts.items():
            self.join(part.whole, value)

    def _view_source(self, value: ValueId) -> ValueId:
        while value in self.producers:
            step = self.producers[value]
            if step.kernel is None or not step.kernel.is_view:
                break
            value = step.reads[0]
        return value

    def find(self, value: ValueId) -> ValueId:
        while self.parent[value] != value:
            value = self.parent[value]
        return value

    def join(self, source: ValueId, target: ValueId) -> None:
        root = self.find(source)
        self.parent[target] = root
        self.targets.add(target)
        # The source's memory is now read as long as the target is.
        self.last_read[root] = max(self.last_read.get(root, -1), self.last_read.get(target, -1))
        if target in self.kept:
            self.kept.add(root)

    def roots(self) -> dict[ValueId, ValueId]:
        parents = enumerate(self.parent)
        return {value: self.find(parent) if parent != value else value for value, parent in parents}

    def refusal(self, position: int, step: Step, source: ValueId, target: ValueId) -> str:
        """Why `source` cannot be overwritten by `target` at this step; empty when it can."""
        values = self.graph.values
        root = self.find(source)
        if target in self.targets:
            return f"the output lies in {in_words(values[self.find(target)].name)} already"
        if source in self.parts:
            return f"it lies in {in_words(values[root].name)}"
        if root in self.given:
            return f"{in_words(values[root].name)} is given from outside"
        if root in self.kept or source in self.kept:
            return f"{in_words(values[source].name)} is a result"
        if values[source].spec.nbytes != values[target].spec.nbytes:
            return "the sizes differ"
        if values[source].spec.layout != values[target].spec.layout:
            return "the layouts differ"
        last = self.last_read.get(root, -1)
        if last > position:
            return f"{in_words(self.graph.steps[last].name)} still reads it"
        # A hint says that an element may be overwritten once this input's element was read, not
        # that every other input is read at the same places.
        if [self.find(value) for value in step.reads].count(root) > 1:
            return "read as another input as well"
        return ""
