"""A lifetime error made on purpose, by which a check of lifetimes shows that it sees one."""

from __future__ import annotations

from dataclasses import replace

from mxrun.graph.graph import Step, StepKind
from mxrun.graph.plan import Block, PhasePlan, Plan


def freed_early(plan: Plan, phase: str) -> Plan | None:
    """The plan as if one block of a training phase were free an operator before its last reader.

    Offsets stay, so that only a run that poisons what is free can tell. Of all blocks it is one
    whose last reader computes most, so that what was in it certainly matters; None without any.
    """
    planned = plan.phases[phase]
    early = max(
        (block for block in planned.blocks if _is_read_last(planned, block)),
        key=lambda block: _flops(_last_step(planned, block)),
        default=None,
    )
    if early is None:
        return None
    blocks = tuple(
        replace(block, last=block.last - 1) if block is early else block for block in planned.blocks
    )
    return replace(plan, phases={**plan.phases, phase: replace(planned, blocks=blocks)})


def _is_read_last(planned: PhasePlan, block: Block) -> bool:
    """Whether a step of backward or an update reads what others left in the block, and then it is
    free.
    """
    step = _last_step(planned, block)
    reads = not set(block.values).isdisjoint(step.reads)
    return reads and step.kind is not StepKind.FORWARD and block.first < block.last - 1


def _last_step(planned: PhasePlan, block: Block) -> Step:
    return planned.steps[block.last - 1]


def _flops(step: Step) -> int:
    return 0 if step.kernel is None else step.kernel.flops
