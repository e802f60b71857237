"""Segments of a training step, each connected to the next by a single tensor.

The forward steps are cut where exactly one live value depends on data; values computed from
parameters alone are not counted. Segments without a product are merged with the following one, so
the tensors between segments are mostly outputs of products, which backward reads anyway. The
backward steps belong to the segments of their forward steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from mxrun.base.dataclass import dataclass
from mxrun.graph.graph import Graph, MemoryClass, Step, StepKind, ValueId, forward_count

# The work of the solver grows with the third power of the number of segments.
_MAX_SEGMENTS = 64
# With fewer segments there is little choice, so segments without a product are not merged.
_MIN_SEGMENTS = 8


@dataclass(frozen=True)
class Segment:
    """Steps in execution order: forward, backward, and the updates that belong to backward.

    given: the input value from the previous segment; None for the first segment.
    """

    given: ValueId | None
    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    updates: tuple[Step, ...]


def cut_segments(graph: Graph, is_cheap: Callable[[Step], bool]) -> tuple[Segment, ...]:
    """Return the segments of a graph with kernels; none if it has no backward steps.

    is_cheap: returns whether the outputs of a forward step are cheap to recompute.
    """
    forward = forward_steps(graph)
    if not forward:
        return ()
    parts, given = _cut(graph, forward, is_cheap)
    if len(parts) < _MIN_SEGMENTS:
        parts, given = _cut(graph, forward, lambda step: False)
    stage_of = {step.name: index for index, part in enumerate(parts) for step in part}
    names = {step.name for step in forward}
    others = [step for step in graph.steps if step.name not in names]
    stage_of |= _backward_stages(others, stage_of, len(parts) - 1)
    return tuple(
        Segment(given[index], tuple(part), *_of_stage(others, stage_of, index))
        for index, part in enumerate(parts)
    )


def _of_stage(
    others: Sequence[Step], stage_of: Mapping[str, int], index: int
) -> Iterator[tuple[Step, ...]]:
    own = [step for step in others if stage_of[step.name] == index]
    yield tuple(step for step in own if step.kind is not StepKind.UPDATE)
    yield tuple(step for step in own if step.kind is StepKind.UPDATE)


def forward_steps(graph: Graph) -> list[Step]:
    """Return the steps before the first backward step, without updates."""
    forward = graph.steps[: forward_count(graph.steps)]
    return [step for step in forward if step.kind is not StepKind.UPDATE]


def _cut(
    graph: Graph, steps: Sequence[Step], is_cheap: Callable[[Step], bool]
) -> tuple[list[list[Step]], list[ValueId | None]]:
    """Return the forward steps of each segment, and its input value from the previous one."""
    parts: list[list[Step]] = [[]]
    given: list[ValueId | None] = [None]
    crossing = _crossing(graph, steps)
    for position, step in enumerate(steps):
        parts[-1].append(step)
        open_values = crossing[position]
        if len(open_values) == 1 and not all(is_cheap(each) for each in parts[-1]):
            parts.append([])
            given.append(next(iter(open_values)))
    if not parts[-1]:
        parts.pop()
        given.pop()
    while len(parts) > _MAX_SEGMENTS:
        sizes = [len(a) + len(b) for a, b in itertools.pairwise(parts)]
        smallest = sizes.index(min(sizes))
        parts[smallest] += parts.pop(smallest + 1)
        given.pop(smallest + 1)
    return parts, given


def _crossing(graph: Graph, steps: Sequence[Step]) -> list[set[ValueId]]:
    """Return after each step the values computed from data that a later step reads."""
    last_read = {value: position for position, step in enumerate(steps) for value in step.reads}
    of_data = {
        value
        for value in graph.sources.values()
        if graph.values[value].memory_class is MemoryClass.IO
    }
    live: set[ValueId] = set()
    found = []
    for position, step in enumerate(steps):
        if not of_data.isdisjoint(step.reads):
            of_data.update(step.writes)
            live.update(step.writes)
        live = {value for value in live if last_read.get(value, -1) > position}
        found.append(set(live))
    return found


def _backward_stages(
    steps: Sequence[Step], forward_stages: Mapping[str, int], last: int
) -> dict[str, int]:
    """Return the segment of each backward step, reorder and update.

    A backward step has the segment of its forward step. A step that reads only gradients, such as
    their sum, runs as soon as they exist. A step that prepares an input of a backward step runs
    with that step.
    """
    producer_stage: dict[ValueId, int] = {}
    found: dict[str, int] = {}
    first_reader: dict[ValueId, int] = {}
    for step in reversed(steps):
        if step.forward is not None:
            first_reader.update(dict.fromkeys(step.reads, forward_stages[step.forward]))
        elif step.kind is not StepKind.UPDATE:
            readers = [first_reader[value] for value in step.writes if value in first_reader]
            first_reader.update(dict.fromkeys(step.reads, max(readers, default=last)))
    for step in steps:
        ready = [producer_stage[value] for value in step.reads if value in producer_stage]
        if step.forward is not None:
            stage = forward_stages[step.forward]
        elif ready:
            stage = min(ready)
        else:
            stage = max((first_reader.get(value, 0) for value in step.writes), default=last)
            stage = last if step.kind is StepKind.UPDATE else stage
        found[step.name] = stage
        producer_stage.update(dict.fromkeys(step.writes, stage))
    return found
