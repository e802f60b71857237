"""Fault injection: plans with a deliberate lifetime error, to test that checked mode detects it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.graph.graph import Step, StepKind
from mxrun.planner.plan import Block, PhasePlan, Plan


@dataclass(frozen=True)
class FreedEarly:
    """Plan in which `block` of a training phase ends one step before its last reader."""

    plan: Plan
    block: Block


def freed_early(plan: Plan, phase: str) -> Iterator[FreedEarly]:
    """Yield plans in which one block of a phase ends one step before its last reader.

    Offsets are unchanged, so only a run that poisons free memory detects the error. Blocks whose
    last readers compute most come first: their contents are most likely to matter, but need not (a
    gradient may be zero for all inputs).
    """
    planned = plan.phases[phase]
    read = [block for block in planned.blocks if _is_read_last(planned, block)]
    for early in sorted(read, key=lambda block: -_flops(_last_step(planned, block))):
        block = replace(early, last=early.last - 1)
        blocks = tuple(block if each is early else each for each in planned.blocks)
        phases = {**plan.phases, phase: replace(planned, blocks=blocks)}
        yield FreedEarly(replace(plan, phases=phases), block)


def _is_read_last(planned: PhasePlan, block: Block) -> bool:
    """Return whether the last step of the block is a backward or update step that reads it.

    Only float values written by earlier steps count: a poisoned index would address any memory.
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
