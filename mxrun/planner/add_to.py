"""Add-to requests for sums of gradients: the later summand is added to the earlier one in memory.

A step that adds two tensors is removed. The step that makes the later summand gets the add-to
request instead and accumulates into the memory of the earlier one. That saves a pass over three
tensors. It is done only where the result is bit-identical: the sum of two numbers does not depend
on their order, and a kernel offers an add-to variant (`Kernel.adding`) only if it rounds the addend
as it would round the written value. A sum of more than two tensors is a chain of such pairs in the
graph's order. Add-to costs no memory: the earlier summand must live until the sum is computed in
any case.

Every refusal is logged with its reason.

Needs: kernels, and steps in execution order. Provides: add-to requests, and `mutations`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.graph.graph import Graph, Step, StepKind, ValueId
from mxrun.operator.kernel import Kernel, OpReqType
from mxrun.planner.hint import ADD_TO, Hint

_SUM = "elemwise_add"


@dataclass(frozen=True)
class AddedTo:
    """Graph without the replaced sums, and one hint per sum."""

    graph: Graph
    hints: tuple[Hint, ...]


def add_to(graph: Graph, enabled: bool = True) -> AddedTo:
    """Replace sums of gradients by add-to requests on the steps before them.

    enabled: if false, no sum is replaced, and every hint is refused.
    """
    rewriter, hints = _AddToRewriter(graph), []
    for position, step in enumerate(graph.steps):
        if not _is_sum(step):
            continue
        earlier, later = rewriter.sides(position)
        reason, kernel = "add-to is off", None
        if enabled:
            reason = rewriter.refusal(position, earlier, later)
        if not reason:
            kernel = rewriter.kernel(later)
            reason = "" if kernel is not None else "its kernel does not add in place"
        if kernel is not None:
            rewriter.join(position, earlier, later, kernel)
        source, target = (graph.values[value].name for value in (earlier, *step.writes))
        hints.append(
            Hint(rewriter.producer_name(later), source, target, reason=reason, kind=ADD_TO)
        )
    return AddedTo(rewriter.graph(), tuple(hints))


def _is_sum(step: Step) -> bool:
    """Return whether a step sums gradients, of several readers or of several batches."""
    kinds = (StepKind.BACKWARD, StepKind.UPDATE)
    is_own = step.kind in kinds and step.forward is None
    return is_own and step.prop is not None and step.prop.type_string == _SUM


class _AddToRewriter:
    """Mutable list of steps in which sums are merged into the steps that make their summands."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._steps: list[Step | None] = list(graph.steps)
        self._mutations = dict(graph.mutations)
        # Values whose memory must not be overwritten.
        self._protected = {*graph.results.values(), *graph.sources.values()}
        self._produced_at = dict.fromkeys(graph.sources.values(), -1)
        # Union-find over values that share memory, and the positions of the steps that read it, by
        # root.
        self._memory = list(range(len(graph.values)))
        self._readers: dict[ValueId, set[int]] = {}
        for position, step in enumerate(graph.steps):
            self._produced_at.update(dict.fromkeys(step.writes, position))
            for value in step.reads:
                self._readers.setdefault(self._root(value), set()).add(position)
            if step.is_view:
                self._share(step.reads[0], step.writes[0])

    def sides(self, position: int) -> tuple[ValueId, ValueId]:
        """Return the two summands of a sum: the one made first, then the one made later."""
        step = self._graph.steps[position]
        earlier, later = step.reads
        if self._produced_at[earlier] > self._produced_at[later]:
            return later, earlier
        return earlier, later

    def producer_name(self, value: ValueId) -> str:
        """Return the name of the step that makes a value; of a source, the value's own name."""
        producer = self._producer(value)
        return self._graph.values[value].name if producer is None else producer.name

    def refusal(self, position: int, earlier: ValueId, later: ValueId) -> str:
        """Return the reason why the step that makes `later` cannot add it to `earlier`, or ""."""
        values, produced_at = self._graph.values, self._produced_at[later]
        (total,) = self._graph.steps[position].writes
        if len({values[value].spec for value in (earlier, later, total)}) > 1:
            return "types or layouts differ"
        if self._produced_at[earlier] == produced_at:
            return "both are made by one step"
        overwritten = self._mutations.get(total, earlier)
        if overwritten != earlier:
            return f"{values[total].name} overwrites {values[overwritten].name}"
        if later in self._mutations:
            return f"{values[later].name} is added to {values[self._mutations[later]].name} already"
        # A running sum over batches is overwritten in any case.
        merged = [later] if total in self._mutations else [earlier, later]
        for value in merged:
            if self._root(value) in self._protected:
                return f"{values[value].name} is a result, or given from outside"
        others = self._readers[self._root(later)] - {position}
        if others:
            return f"{values[later].name} is read by {self._names(others)} as well"
        late = {at for at in self._readers[self._root(earlier)] - {position} if at >= produced_at}
        return f"{values[earlier].name} is still read by {self._names(late)}" if late else ""

    def kernel(self, value: ValueId) -> Kernel | None:
        """Return the add-to variant of the kernel that makes a value.

        None if the kernel has no such variant, or if the variant needs a larger workspace.
        """
        producer = self._producer(value)
        if producer is None or producer.kernel is None:
            return None
        prepare = producer.kernel.adding.get(producer.outputs.index(value))
        kernel = None if prepare is None else prepare()
        if kernel is None or kernel.workspace_bytes > producer.kernel.workspace_bytes:
            return None
        return replace(kernel, candidates=producer.kernel.candidates)

    def join(self, position: int, earlier: ValueId, later: ValueId, kernel: Kernel) -> None:
        """Remove the sum at `position`; the step that makes `later` writes the sum instead."""
        step, at = self._graph.steps[position], self._produced_at[later]
        producer = self._producer(later)
        assert producer is not None
        (total,) = step.writes
        index = producer.outputs.index(later)
        outputs, requests = list(producer.outputs), list(producer.requests)
        outputs[index], requests[index] = total, OpReqType.ADD
        self._steps[at] = replace(
            producer,
            outputs=tuple(outputs),
            requests=tuple(requests),
            added_to=(*producer.added_to, earlier),
            kernel=kernel,
        )
        self._steps[position] = None
        self._produced_at[total] = at
        self._mutations[total] = earlier
        self._readers[self._root(earlier)].remove(position)
        self._readers[self._root(earlier)].add(at)
        self._share(earlier, total)

    def graph(self) -> Graph:
        """Return the graph of the remaining steps."""
        steps = tuple(step for step in self._steps if step is not None)
        return replace(self._graph, steps=steps, mutations=self._mutations)

    def _producer(self, value: ValueId) -> Step | None:
        at = self._produced_at[value]
        return None if at < 0 else self._steps[at]

    def _names(self, positions: Iterable[int]) -> str:
        return self._graph.steps[min(positions)].name

    def _root(self, value: ValueId) -> ValueId:
        while self._memory[value] != value:
            value = self._memory[value]
        return value

    def _share(self, source: ValueId, target: ValueId) -> None:
        """Record that `target` shares the memory of `source`."""
        root, own = self._root(source), self._root(target)
        self._memory[own] = root
        if own in self._protected:
            self._protected.add(root)
        self._readers.setdefault(root, set()).update(self._readers.pop(own, set()))
