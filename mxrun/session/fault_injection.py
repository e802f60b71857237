"""A lifetime error made on purpose, by which a check of lifetimes shows that it sees one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mxrun.graph.graph import Step, StepKind
from mxrun.planner.plan import Block, PhasePlan, Plan


@dataclass(frozen=True)
class FreedEarly:
    """A plan in which `block` of a training phase is free an operator before its last reader."""

    plan: Plan
    block: Block


def freed_early(plan: Plan, phase: str) -> Iterator[FreedEarly]:
    """The plan as if one block of a training phase were free an operator before its last reader.

    Offsets stay, so that only a run that poisons what is free can tell. First come the blocks
    whose last readers compute most: what was in those matters more surely, but need not (a
    gradient may be zero whatever comes in).
    """
    planned = plan.phases[phase]
    read = [block for block in planned.blocks if _is_read_last(planned, block)]
    for early in sorted(read, key=lambda block: -_flops(_last_step(planned, block))):
        block = replace(early, last=early.last - 1)
        blocks = tuple(block if each is early else each for each in planned.blocks)
        phases = {**plan.phases, phase: replace(planned, blocks=blocks)}
        yield FreedEarly(replace(plan, phases=phases), block)


def _is_read_last(planned: PhasePlan, block: Block) -> bool:
    """Whether a step of backward or an update reads what others left in the block, and then it is
    free.

    Numbers alone: an index that is poisoned lies anywhere in memory.
    """
    step = _last_step(planned, block)
    reads = not set(block.values).isdisjoint(step.reads)
    numbers = all("float" in planned.graph.spec(value).dtype for value in block.values)
    late = step.kind is not StepKind.FORWARD and block.first < block.last - 1
    return reads and numbers and late


def _last_step(planned: PhasePlan, block: Block) -> Step:
    return planned.steps[block.last - 1]


def _flops(step: Step) -> int:
    return 0 if step.kernel is None else step.kernel.flops
