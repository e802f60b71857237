"""Sums of gradients without a step of their own: what comes later is added to what is there.

Where a step adds two tensors, the one that is made later may be added to the other as it is made:
its producer gets the add-to request, and the sum lies in the memory of what it is added to. That
saves a pass over three tensors. It is done where every bit stays the same: two numbers have one
sum in whatever order, and the kernel says of itself that it rounds what it adds as if it wrote it.
Sums of more are made of such pairs, in the order that the graph gives them. It costs no memory:
the tensor that is added to must live until the sum is made anyway.

Everything refused is logged with its reason.

Needs: kernels, and steps in the order they run. Provides: add-to requests, and `mutations`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mxrun.graph.graph import Graph, Step, StepKind, ValueId
from mxrun.operator.kernel import Kernel, OpReqType
from mxrun.planner.hint import ADD_TO, Hint

_SUM = "elemwise_add"


@dataclass(frozen=True)
class AddedTo:
    """The graph with fewer steps, and what became of each sum."""

    graph: Graph
    hints: tuple[Hint, ...]


def add_to(graph: Graph, enabled: bool = True) -> AddedTo:
    """Make sums of gradients part of the steps before them; with `enabled` false none."""
    joining, hints = _Joining(graph), []
    for position, step in enumerate(graph.steps):
        if not _is_sum(step):
            continue
        there, added = joining.sides(position)
        reason, kernel = "add-to is off", None
        if enabled:
            reason = joining.refusal(position, there, added)
        if not reason:
            kernel = joining.kernel(added)
            reason = "" if kernel is not None else "its kernel does not add in place"
        if kernel is not None:
            joining.join(position, there, added, kernel)
        source, target = (graph.values[value].name for value in (there, *step.writes))
        hints.append(Hint(joining.producer_name(added), source, target, reason, ADD_TO))
    return AddedTo(joining.graph(), tuple(hints))


def _is_sum(step: Step) -> bool:
    """Whether a step adds gradients: of several readers, or of several batches."""
    kinds = (StepKind.BACKWARD, StepKind.UPDATE)
    is_own = step.kind in kinds and step.forward is None
    return is_own and step.prop is not None and step.prop.type_string == _SUM


class _Joining:
    """The steps of a graph, of which some become part of others before them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._steps: list[Step | None] = list(graph.steps)
        self._mutations = dict(graph.mutations)
        # Memory that must stay as it is.
        self._kept = {*graph.results.values(), *graph.sources.values()}
        self._made_at = dict.fromkeys(graph.sources.values(), -1)
        # Values that lie in one memory, and the steps that read there.
        self._memory = list(range(len(graph.values)))
        self._readers: dict[ValueId, set[int]] = {}
        for position, step in enumerate(graph.steps):
            self._made_at.update(dict.fromkeys(step.writes, position))
            for value in step.reads:
                self._readers.setdefault(self._root(value), set()).add(position)
            if step.kernel is not None and step.kernel.is_view:
                self._share(step.reads[0], step.writes[0])

    def sides(self, position: int) -> tuple[ValueId, ValueId]:
        """What a sum adds: what is there, and what is made later."""
        step = self._graph.steps[position]
        (there, added), (total,) = step.reads, step.writes
        if total not in self._graph.mutations and self._made_at[there] > self._made_at[added]:
            return added, there
        return there, added

    def producer_name(self, value: ValueId) -> str:
        """The step that makes a value; the value's own name where it is given from outside."""
        producer = self._producer(value)
        return self._graph.values[value].name if producer is None else producer.name

    def refusal(self, position: int, there: ValueId, added: ValueId) -> str:
        """Why the step that makes `added` cannot add it to `there`; empty when it can."""
        values, made_at = self._graph.values, self._made_at[added]
        (total,) = self._graph.steps[position].writes
        if len({values[value].spec for value in (there, added, total)}) > 1:
            return "types or layouts differ"
        if self._made_at[there] == made_at:
            return "both are made by one step"
        if added in self._mutations:
            return f"{values[added].name} is added to {values[self._mutations[added]].name} already"
        # A running sum of batches is overwritten anyway.
        kept = [added] if self._mutations.get(total) == there else [there, added]
        for value in kept:
            if self._root(value) in self._kept:
                return f"{values[value].name} is a result, or given from outside"
        others = self._readers[self._root(added)] - {position}
        if others:
            return f"{values[added].name} is read by {self._names(others)} as well"
        late = {at for at in self._readers[self._root(there)] - {position} if at >= made_at}
        return f"{values[there].name} is still read by {self._names(late)}" if late else ""

    def kernel(self, value: ValueId) -> Kernel | None:
        """The kernel that makes a value, as one that adds it, where there is such a one."""
        producer = self._producer(value)
        if producer is None or producer.kernel is None:
            return None
        prepare = producer.kernel.adding.get(producer.outputs.index(value))
        kernel = None if prepare is None else prepare()
        if kernel is None or kernel.workspace_bytes > producer.kernel.workspace_bytes:
            return None
        return replace(kernel, candidates=producer.kernel.candidates)

    def join(self, position: int, there: ValueId, added: ValueId, kernel: Kernel) -> None:
        """Let the step that makes `added` make the sum at `position` instead."""
        step, at = self._graph.steps[position], self._made_at[added]
        producer = self._producer(added)
        assert producer is not None
        (total,) = step.writes
        index = producer.outputs.index(added)
        outputs, requests = list(producer.outputs), list(producer.requests)
        outputs[index], requests[index] = total, OpReqType.ADD
        self._steps[at] = replace(
            producer,
            outputs=tuple(outputs),
            requests=tuple(requests),
            added_to=(*producer.added_to, there),
            kernel=kernel,
        )
        self._steps[position] = None
        self._made_at[total] = at
        self._mutations[total] = there
        self._readers[self._root(there)].remove(position)
        self._readers[self._root(there)].add(at)
        self._share(there, total)

    def graph(self) -> Graph:
        """The steps that are left."""
        steps = tuple(step for step in self._steps if step is not None)
        return replace(self._graph, steps=steps, mutations=self._mutations)

    def _producer(self, value: ValueId) -> Step | None:
        at = self._made_at[value]
        return None if at < 0 else self._steps[at]

    def _names(self, positions: Iterable[int]) -> str:
        return self._graph.steps[min(positions)].name

    def _root(self, value: ValueId) -> ValueId:
        while self._memory[value] != value:
            value = self._memory[value]
        return value

    def _share(self, source: ValueId, target: ValueId) -> None:
        """Let a value lie in the memory of another."""
        root, own = self._root(source), self._root(target)
        self._memory[own] = root
        if own in self._kept:
            self._kept.add(root)
        self._readers.setdefault(root, set()).update(self._readers.pop(own, set()))
