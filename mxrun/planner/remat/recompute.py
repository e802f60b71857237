"""A training step in which some forward steps run again in backward, so that less is kept.

The order of moves is given; every step that it repeats gets values of its own, and readers take the
newest. A repeated step has its original's kernel, random stream included, so it makes the same
bits. States change in update steps alone, of which none is repeated.

Needs: kernels, and stages. Provides: the same results, from steps in another order and with more of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from mxrun.graph.graph import Graph, GraphBuilder, Step, StepKind, ValueId
from mxrun.passes.updates import eager
from mxrun.planner.remat.segments import Segment
from mxrun.planner.remat.solver import Action, Move

# The ways in which a stage keeps what its backward needs: all that forward made, or all but what
# cheap steps make again.
KEEP_ALL, DROP_CHEAP = 0, 1
# What is smaller than another output of its step by this factor is kept.
_SMALL = 16


def recompute(
    graph: Graph,
    stages: Sequence[Segment],
    actions: Iterable[Action],
    is_cheap: Callable[[Step], bool],
) -> Graph:
    """The graph with its steps in the order of `actions`."""
    emission = ReplayBuilder(graph, is_cheap, {*graph.results.values(), *given_values(stages)})
    for action in actions:
        stage = stages[action.stage]
        if action.move is Move.BACK:
            emission.backward(stage)
        else:
            emission.forward(stage)
            if action.move is Move.KEEP and action.way == DROP_CHEAP:
                emission.drop_cheap(stage)
    updates = tuple(step for step in graph.steps if step.kind is StepKind.UPDATE)
    return _without_idle(emission.graph(updates))


def _without_idle(graph: Graph) -> Graph:
    """The graph without steps of which nobody reads anything: what was repeated in vain."""
    needed = {*graph.results.values(), *graph.mutations}
    kept = []
    for step in reversed(graph.steps):
        if not needed.isdisjoint(step.writes):
            needed.update(step.reads)
            kept.append(step)
    return replace(graph, steps=tuple(reversed(kept)))


def given_values(stages: Sequence[Segment]) -> set[ValueId]:
    """What goes from stages to the next."""
    return {stage.given for stage in stages if stage.given is not None}


class ReplayBuilder:
    """Collects steps, of which some come more than once; values in `kept` are never dropped."""

    def __init__(
        self, graph: Graph, is_cheap: Callable[[Step], bool], kept: Collection[ValueId]
    ) -> None:
        self._builder = GraphBuilder(graph)
        self._builder.steps = []
        self._is_cheap, self._kept = is_cheap, kept
        self._newest: dict[ValueId, ValueId] = {}
        # The step that makes a value again where it is wanted.
        self._dropped: dict[ValueId, Step] = {}
        self._times: dict[str, int] = {}

    def forward(self, stage: Segment) -> None:
        """Run the stage's forward steps: for the first time, or again."""
        for step in stage.forward:
            for value in step.writes:
                self._dropped.pop(value, None)
            self._run(step)

    def drop_cheap(self, stage: Segment) -> None:
        """Let what the stage's cheap steps made be made again where backward wants it."""
        for step in stage.forward:
            if self._is_cheap(step) and not any(value in self._kept for value in step.writes):
                self._dropped.update(dict.fromkeys(self._large(step), step))

    def _large(self, step: Step) -> list[ValueId]:
        """Without statistics and the like, for which alone nothing is worth running again."""
        sizes = {value: self._builder.values[value].spec.nbytes for value in step.writes}
        return [value for value, size in sizes.items() if _SMALL * size >= max(sizes.values())]

    def backward(self, stage: Segment) -> None:
        """Run the stage's backward steps."""
        for step in stage.backward:
            self.add(step)

    def add(self, step: Step) -> None:
        """Append a step that comes once, after what it reads that was dropped."""
        for value in step.reads:
            self._restore(value)
        inputs = tuple(self._newest.get(v, v) if v is not None else None for v in step.inputs)
        self._builder.step(replace(step, inputs=inputs))

    def graph(self, updates: Sequence[Step]) -> Graph:
        """What was collected, and `updates`, each as early as can be.

        Updates of statistics read what forward made first, so that they need not wait.
        """
        graph = self._builder.build()
        return eager(replace(graph, steps=(*graph.steps, *updates)))

    def _restore(self, value: ValueId) -> None:
        """Run the dropped step that made a value, after those that it reads from."""
        # Chains of dropped steps may be longer than Python's calls can nest.
        waiting: list[ValueId | Step] = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, Step):
                self._run(one)
                continue
            step = self._dropped.get(one)
            if step is not None:
                for made in step.writes:
                    self._dropped.pop(made, None)
                waiting += (step, *reversed(step.reads))

    def _run(self, step: Step) -> None:
        """Run a forward step; again, it writes values of its own."""
        times = self._times[step.name] = self._times.get(step.name, 0) + 1
        if times == 1:
            self.add(step)
            return
        values, again = self._builder.values, ":again" if times == 2 else f":again{times - 1}"
        inputs = tuple(self._newest.get(v, v) if v is not None else None for v in step.inputs)
        outputs = []
        for value in step.outputs:
            made = None
            if value is not None:
                old = values[value]
                made = self._builder.value(old.name + again, old.spec, old.memory_class)
                self._newest[value] = made
            outputs.append(made)
        name = step.name + again
        self._builder.step(
            replace(step, name=name, inputs=inputs, outputs=tuple(outputs), repeats=step.name)
        )
