"""Storage of every value: views, mutated states, slices of parent buffers and in-place hints.

An in-place hint is taken if the step is the last reader of the input, if input and output have the
same size and layout, and if the input is neither a source nor a result of the graph. Every refusal
is logged with its reason.

Needs: kernels, and the slices of parent buffers. Provides: the storage of every value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from mxrun.base.dataclass import dataclass
from mxrun.graph.graph import Graph, Step, ValueId
from mxrun.graph.naming import in_words
from mxrun.planner.concat_in_place import BufferSlice, BufferSlices
from mxrun.planner.hint import Hint


@dataclass(frozen=True)
class Storage:
    """Shared storage: `root[value]` is the value whose memory `value` uses (itself for most).

    parts: for values that use only a slice of that memory, the slice.
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
    """Assign storage to every value.

    enabled: if false, all in-place hints are refused. joined: slices of parent buffers. decided:
    hints that earlier stages took or refused, put before this function's own.
    """
    joined = joined or BufferSlices()
    sharing = _Sharing(graph, joined.parts)
    hints = [*decided, *(hint for _, hint in joined.inputs)]
    for position, step in enumerate(graph.steps):
        if step.is_view:
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
        # Reads of a view count as reads of its source, because they share memory.
        for step in reversed(graph.steps):
            if step.is_view:
                view = self.last_read.get(step.writes[0], -1)
                source = step.reads[0]
                self.last_read[source] = max(self.last_read[source], view)
        self.protected = {self._view_source(value) for value in graph.results.values()}
        for value, part in parts.items():
            self.join(part.parent, value)

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
        # The lifetime of the source's memory now includes the target's.
        self.last_read[root] = max(self.last_read.get(root, -1), self.last_read.get(target, -1))
        if target in self.protected:
            self.protected.add(root)

    def roots(self) -> dict[ValueId, ValueId]:
        parents = enumerate(self.parent)
        return {value: self.find(parent) if parent != value else value for value, parent in parents}

    def refusal(self, position: int, step: Step, source: ValueId, target: ValueId) -> str:
        """Return the reason why `target` cannot overwrite `source` at this step, or ""."""
        values = self.graph.values
        root = self.find(source)
        if target in self.targets:
            return f"the output is already in {in_words(values[self.find(target)].name)}"
        if source in self.parts:
            return f"it is a slice of {in_words(values[root].name)}"
        if root in self.given:
            return f"{in_words(values[root].name)} is given from outside"
        if root in self.protected or source in self.protected:
            return f"{in_words(values[source].name)} is a result"
        if values[source].spec.nbytes != values[target].spec.nbytes:
            return "the sizes differ"
        if values[source].spec.layout != values[target].spec.layout:
            return "the layouts differ"
        last = self.last_read.get(root, -1)
        if last > position:
            return f"{in_words(self.graph.steps[last].name)} still reads it"
        # A hint permits overwriting an element once that element of this input is read. Another
        # input with the same memory may be read in another order.
        if [self.find(value) for value in step.reads].count(root) > 1:
            return "another input shares its memory"
        return ""
