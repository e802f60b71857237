"""Training step with rematerialisation: forward steps run again in backward to lower peak memory.

The sequence of moves is given. Every repeated step writes new values, and readers use the newest. A
repeated step has the kernel of the original, random stream included, so it produces the same bits.
States change only in update steps, none of which is repeated.

Needs: kernels, and segments. Provides: the same results, from reordered and repeated steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from mxrun.graph.graph import Graph, GraphBuilder, Step, StepKind, ValueId
from mxrun.passes.updates import hoist_updates
from mxrun.planner.remat.segments import Segment
from mxrun.planner.remat.solver import Action, Move

# Retention of a segment's forward results for its backward: all of them, or without those that
# cheap steps can recompute.
RETAIN_ALL, DROP_CHEAP = 0, 1
# Outputs smaller than the largest output of their step by this factor are always retained.
_SMALL = 16


def recompute(
    graph: Graph,
    stages: Sequence[Segment],
    actions: Iterable[Action],
    is_cheap: Callable[[Step], bool],
) -> Graph:
    """Return the graph with its steps in the order of `actions`."""
    replay = ReplayBuilder(graph, is_cheap, {*graph.results.values(), *given_values(stages)})
    for action in actions:
        stage = stages[action.stage]
        if action.move is Move.BACK:
            replay.backward(stage)
        else:
            replay.forward(stage)
            if action.move is Move.KEEP and action.retention == DROP_CHEAP:
                replay.drop_cheap(stage)
    updates = tuple(step for step in graph.steps if step.kind is StepKind.UPDATE)
    return _without_idle(replay.graph(updates))


def _without_idle(graph: Graph) -> Graph:
    """Return the graph without steps whose outputs are never read: repeated without need."""
    needed = {*graph.results.values(), *graph.mutations}
    retained = []
    for step in reversed(graph.steps):
        if not needed.isdisjoint(step.writes):
            needed.update(step.reads)
            retained.append(step)
    return replace(graph, steps=tuple(reversed(retained)))


def given_values(stages: Sequence[Segment]) -> set[ValueId]:
    """Return the values that are handed from one segment to the next."""
    return {stage.given for stage in stages if stage.given is not None}


class ReplayBuilder:
    """Builder of a step sequence in which steps may be repeated.

    retained: values that are never dropped.
    """

    def __init__(
        self, graph: Graph, is_cheap: Callable[[Step], bool], retained: Collection[ValueId]
    ) -> None:
        self._builder = GraphBuilder(graph)
        self._builder.steps = []
        self._is_cheap, self._retained = is_cheap, retained
        self._newest: dict[ValueId, ValueId] = {}
        # By dropped value, the step that recomputes it on demand.
        self._dropped: dict[ValueId, Step] = {}
        self._times: dict[str, int] = {}

    def forward(self, stage: Segment) -> None:
        """Append the segment's forward steps, for the first time or again."""
        for step in stage.forward:
            for value in step.writes:
                self._dropped.pop(value, None)
            self._run(step)

    def drop_cheap(self, stage: Segment) -> None:
        """Drop the outputs of the segment's cheap steps, to be recomputed for backward."""
        for step in stage.forward:
            if self._is_cheap(step) and not any(value in self._retained for value in step.writes):
                self._dropped.update(dict.fromkeys(self._large(step), step))

    def _large(self, step: Step) -> list[ValueId]:
        """Return the large outputs of a step.

        Small ones, such as statistics, are never worth a repeated step.
        """
        sizes = {value: self._builder.values[value].spec.nbytes for value in step.writes}
        return [value for value, size in sizes.items() if _SMALL * size >= max(sizes.values())]

    def backward(self, stage: Segment) -> None:
        """Append the segment's backward steps."""
        for step in stage.backward:
            self.add(step)

    def add(self, step: Step) -> None:
        """Append a step that runs once, after the steps that recompute its dropped inputs."""
        for value in step.reads:
            self._restore(value)
        inputs = tuple(self._newest.get(v, v) if v is not None else None for v in step.inputs)
        self._builder.step(replace(step, inputs=inputs))

    def graph(self, updates: Sequence[Step]) -> Graph:
        """Return the graph of the collected steps and of `updates`, each as early as possible.

        Updates of statistics read the first forward's outputs, so they need not wait for backward.
        """
        graph = self._builder.build()
        return hoist_updates(replace(graph, steps=(*graph.steps, *updates)))

    def _restore(self, value: ValueId) -> None:
        """Append the step that recomputes a dropped value, after those for its own inputs."""
        # Iterative, because chains of dropped steps may exceed Python's recursion limit.
        waiting: list[ValueId | Step] = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, Step):
                self._run(one)
                continue
            step = self._dropped.get(one)
            if step is not None:
                for written in step.writes:
                    self._dropped.pop(written, None)
                waiting += (step, *reversed(step.reads))

    def _run(self, step: Step) -> None:
        """Append a forward step; a repetition writes new values."""
        times = self._times[step.name] = self._times.get(step.name, 0) + 1
        if times == 1:
            self.add(step)
            return
        values, again = self._builder.values, ":again" if times == 2 else f":again{times - 1}"
        inputs = tuple(self._newest.get(v, v) if v is not None else None for v in step.inputs)
        outputs = []
        for value in step.outputs:
            copy = None
            if value is not None:
                old = values[value]
                copy = self._builder.value(old.name + again, old.spec, old.memory_class)
                self._newest[value] = copy
            outputs.append(copy)
        name = step.name + again
        self._builder.step(
            replace(step, name=name, inputs=inputs, outputs=tuple(outputs), repeats=step.name)
        )
