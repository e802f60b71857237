"""Bytes and seconds of a training step's segments, each segment simulated alone.

In-place sharing and lifetimes within a segment are computed by the planner itself. Not covered are
interactions between segments, and concat in place, which saves most across them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mxrun.graph.cost import StepSeconds
from mxrun.graph.graph import Graph, Step, StepKind, ValueId, writes
from mxrun.planner.inplace import inplace
from mxrun.planner.liveness import live_bytes
from mxrun.planner.remat.recompute import DROP_CHEAP, RETAIN_ALL, ReplayBuilder, given_values
from mxrun.planner.remat.segments import Segment
from mxrun.planner.remat.solver import ChainStage, Retention

# Names of empty steps: between forward and backward, where the output's gradient arrives, and at
# the end.
_WAIT, _END = "wait", "end"


class SegmentCosts:
    """Measurement of the segments of a graph with kernels."""

    def __init__(self, graph: Graph, stages: Sequence[Segment], seconds: StepSeconds) -> None:
        self._graph, self._stages, self._seconds = graph, stages, seconds
        self._retained = {*graph.results.values(), *given_values(stages)}
        self._arriving, self._lasting = _gradients(stages)

    def chain(self) -> list[ChainStage]:
        """Return one chain stage per segment.

        Gradients that updates read at the very end count as live all the time.
        """
        lasting = sum(map(self._size, self._lasting))
        return [self._stage(index, lasting) for index in range(len(self._stages))]

    def _stage(self, index: int, lasting: int) -> ChainStage:
        given = self._stages[index].given
        passing = self._replay(index)
        passing.add(_idle(_END, self._output(index)))
        retentions = (
            self._retention(index, choice, lasting) for choice in (RETAIN_ALL, DROP_CHEAP)
        )
        return ChainStage(
            seconds=sum(map(self._seconds, self._stages[index].forward)),
            input_bytes=0 if given is None else self._size([given]),
            gradient_bytes=self._size(self._arriving[index]),
            passing_peak=lasting + max(_live(passing.graph(()))),
            retentions=tuple(retentions),
        )

    def _retention(self, index: int, choice: int, lasting: int) -> Retention:
        """Simulate forward, an empty step that reads the output, and backward."""
        stage, arriving = self._stages[index], self._arriving[index]
        replay = self._replay(index)
        if choice == DROP_CHEAP:
            replay.drop_cheap(stage)
        replay.add(_idle(_WAIT, self._output(index), arriving))
        replay.backward(stage)
        leaving = self._arriving[index - 1] if index else ()
        replay.add(_idle(_END, (*leaving, *self._lasting[index])))
        graph = replay.graph(stage.updates)
        live = _live(graph)
        position = [step.name for step in graph.steps].index(_WAIT)
        others = lasting - self._size(self._lasting[index])
        return Retention(
            saved=live[position] - self._size(self._output(index)) - self._size(arriving),
            forward_peak=others + max(live[:position], default=0),
            backward_peak=others + max(live[position:]),
            extra_s=sum(self._seconds(step) for step in graph.steps if step.repeats is not None),
        )

    def _replay(self, index: int) -> ReplayBuilder:
        """Return a builder that holds the forward steps of a segment."""
        replay = ReplayBuilder(self._graph, self._seconds.is_cheap, self._retained)
        replay.forward(self._stages[index])
        return replay

    def _output(self, index: int) -> list[ValueId]:
        """Return the value that a segment hands to the next, in a list; empty for the last."""
        return [
            v for stage in self._stages[index + 1 : index + 2] if (v := stage.given) is not None
        ]

    def _size(self, values: Sequence[ValueId]) -> int:
        return sum(map(self._graph.block_bytes, values))


def _idle(name: str, inputs: Sequence[ValueId], outputs: Sequence[ValueId] = ()) -> Step:
    """Return a step without a kernel, which only extends the lifetimes of its inputs."""
    written = tuple(outputs)
    return Step(name, StepKind.BACKWARD, None, tuple(inputs), written, writes(written))


def _live(graph: Graph) -> list[int]:
    """Return the live bytes at each step of a part of a graph, without the part's inputs."""
    written = {value for step in graph.steps for value in step.writes}
    read = {value for step in graph.steps for value in step.reads}
    part = replace(
        graph,
        sources={str(value): value for value in read - written},
        results={name: value for name, value in graph.results.items() if value in written},
    )
    return live_bytes(part, inplace(part))


def _gradients(stages: Sequence[Segment]) -> tuple[list[list[ValueId]], list[list[ValueId]]]:
    """Return two lists of gradients by segment.

    The first list has the gradients that arrive at the segment's backward or pass it on the way to
    earlier segments. The second has the segment's own gradients that only updates at the end of
    other segments read.
    """
    found, waiting = set[ValueId](), set[ValueId]()
    reads, lasting = [], []
    for stage in stages:
        written = {value for step in stage.backward for value in step.writes}
        lasting.append(sorted((written & waiting) - found))
        found |= {value for step in stage.backward for value in step.reads}
        waiting |= {value for step in stage.updates for value in step.reads}
        reads.append(set(found))
    later, arriving = set[ValueId](), []
    for stage, needed in zip(reversed(stages), reversed(reads), strict=True):
        arriving.append(sorted(later & needed))
        later |= {value for step in stage.backward for value in step.writes}
    return arriving[::-1], lasting
