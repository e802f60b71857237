"""Buckets of gradients: adjacent bytes of the arena that backward completes at the same time.

Gradients are exchanged bucket by bucket, so that the first can be summed over the contexts while
backward computes the next.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from mxrun.base.dataclass import dataclass
from mxrun.graph.graph import MemoryClass, Step
from mxrun.graph.update_rule import accumulated
from mxrun.planner.gradient_groups import gradient_groups, rank_bounds
from mxrun.planner.plan import PhasePlan, Plan


@dataclass(frozen=True)
class GradientBucket:
    """Bytes `begin` to `end` of the arena, complete after the first `ready` steps of a phase.

    first: number of the step, from 1, that writes to them first; other buckets may be complete
    between the two. names: of the pinned tensors in it, all float32.
    """

    names: tuple[str, ...]
    begin: int
    end: int
    first: int
    ready: int

    @property
    def elements(self) -> int:
        """Number of float32 elements, the padding between tensors included."""
        return (self.end - self.begin) // 4


def gradient_buckets(
    plan: Plan, phase: str, nbytes: int | None = None
) -> tuple[GradientBucket, ...]:
    """Return the buckets of a phase's gradients, in their order in the arena.

    nbytes: as for `gradient_groups`.
    """
    written = _steps_that_write(plan.phases[phase])
    gradients = [
        block
        for block in plan.pinned
        if block.memory_class is MemoryClass.GRADIENTS and block.name in written
    ]
    return tuple(
        GradientBucket(
            tuple(block.name for block in group),
            group[0].offset,
            group[-1].end,
            first=min(written[block.name][0] for block in group),
            ready=max(written[block.name][-1] for block in group),
        )
        for group in gradient_groups(gradients, nbytes)
    )


def parameter_bounds(plan: Plan, names: Collection[str], ranks: int) -> dict[str, list[int]]:
    """Return for each trained parameter the bounds of the slices that ranks own (`rank_bounds`).

    names: of all trained parameters.
    """
    elements = {accumulated(name): plan.specs[name].elements for name in names}
    found = rank_bounds([each for each in plan.pinned if each.name in elements], elements, ranks)
    return {name: found[accumulated(name)] for name in names}


def cuts(buckets: Sequence[GradientBucket], steps: int) -> tuple[int, ...]:
    """Return the numbers of steps after which buckets are complete, ascending.

    steps: of the phase; its end is not among them.
    """
    return tuple(sorted({bucket.ready for bucket in buckets} - {steps}))


def pieces_between(buckets: Sequence[GradientBucket], phase: PhasePlan) -> list[Sequence[Step]]:
    """Return the steps of a phase in pieces that end where buckets are complete."""
    ends = (*cuts(buckets, len(phase.steps)), len(phase.steps))
    return [phase.steps[begin:end] for begin, end in pairwise((0, *ends))]


def _steps_that_write(phase: PhasePlan) -> dict[str, list[int]]:
    """Return for each source that a phase writes the numbers of the steps, from 1, that do."""
    roots = phase.graph.roots()
    names = {value: name for name, value in phase.graph.sources.items()}
    found: dict[str, list[int]] = {}
    for number, step in enumerate(phase.steps, 1):
        for value in step.writes:
            if roots[value] in names:
                found.setdefault(names[roots[value]], []).append(number)
    return found
