"""A training step fitted into so many bytes: what is made again in backward, and what that costs.

The stages of the step are measured one by one; the orders that are fastest by these measures are
then made into graphs, of which the true bytes count. The plain order is taken where it fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.machine import Machine
from mxrun.graph.cost import StepSeconds
from mxrun.graph.graph import Graph
from mxrun.planner.liveness import peak_bytes
from mxrun.planner.place import place
from mxrun.planner.plan import Block, PhasePlan, Recomputed
from mxrun.planner.remat.recompute import recompute
from mxrun.planner.remat.segment_costs import StageSizes
from mxrun.planner.remat.segments import Segment, stages_of
from mxrun.planner.remat.solver import ChainPlans
from mxrun.planner.storage import Sharing, shared, storage_of

# The measures err on both sides, so orders are looked for in up to this part of the plain bytes.
_SLACK = 1.5
_SLOTS = 1500
# Orders near the one that the measures suggest that are tried: faster ones that may fit all the
# same, and, where nothing fits, those that need least.
_NEAR_ORDERS, _LAST_ORDERS = 4, 12
# What orders are called in which stages run forward and backward, some of them again.
_BY_STAGES = "by stages"
# Of those that need least, how many get offsets.
_PLACED = 3


class OverBudget(UserError):
    """A run does not fit into its budget; `least_bytes` are those that its arena would need."""

    def __init__(self, diagnostic: Diagnostic, least_bytes: int) -> None:
        super().__init__(diagnostic)
        self.least_bytes = least_bytes


@dataclass(frozen=True)
class Budget:
    """Bytes that the whole arena may have, or the share of the reusable bytes of the plain plan.

    least: whether the plan that needs least is wanted, not the fastest that fits. place: where the
    user says so.
    """

    nbytes: int | None = None
    share: float | None = None
    least: bool = False
    place: SourceLocation | None = None

    def reusable_bytes(self, phases: Mapping[str, PhasePlan], base: int) -> int:
        """What is left for the reusable region of plain phases beside `base` bytes of others."""
        if self.nbytes is not None:
            return self.nbytes - base
        largest = _largest(phases)
        return largest if self.share is None else int(self.share * largest)


@dataclass(frozen=True)
class Plain:
    """A phase in its plain order; graph: its own before any sum became part of another step."""

    plan: PhasePlan
    graph: Graph


def fitted(
    phases: Mapping[str, Plain],
    pinned: tuple[Block, ...],
    budget: Budget,
    sharing: Sharing,
    machine: Machine | None,
) -> tuple[dict[str, PhasePlan], int]:
    """The phases within the budget, and the bytes that it allows the whole arena.

    sharing: as in the plain plans. Evaluation lies in the same arena, so it has to fit as well,
    though nothing is left out of it.
    Raises OverBudget, with the least that would do and the step that needs it, where that is not
    to be had.
    """
    base = sum(block.nbytes for block in pinned)
    plans = {name: plain.plan for name, plain in phases.items()}
    limit, largest = budget.reusable_bytes(plans, base), _largest(plans)
    found: dict[str, PhasePlan] = {}
    beyond = []
    for name, plain in phases.items():
        fitting = PhaseFitting(plain, pinned, sharing, machine)
        if budget.least:
            found[name] = fitting.least()
        elif plain.plan.reusable_bytes <= limit:
            found[name] = plain.plan
        else:
            found[name] = fitting.within(limit) or fitting.least()
            if found[name].reusable_bytes > limit:
                beyond.append(found[name])
    if beyond:
        most = max(beyond, key=lambda phase: phase.reusable_bytes)
        diagnostic = _infeasible(most, base, limit, budget, largest)
        raise OverBudget(diagnostic, base + most.reusable_bytes)
    return found, base + limit


def _largest(phases: Mapping[str, PhasePlan]) -> int:
    return max((phase.reusable_bytes for phase in phases.values()), default=0)


def share_that_would_do(wanted: int, reusable_bytes: int) -> str:
    """What to do where a share of `reusable_bytes` comes to less than `wanted`, the least found.

    Names the least percentage with two decimals; there is none where nothing less was found.
    """
    if wanted >= reusable_bytes:
        return "leave memory.budget out; no plan that was tried needs less"
    hundredths = -(-wanted * 10_000 // reusable_bytes)
    # What is written in a config is read as a float, and may come to less.
    while int(float(f"{hundredths / 100:.2f}") / 100 * reusable_bytes) < wanted:
        hundredths += 1
    share = f"{hundredths / 100:.2f}%"
    return f"memory.budget={share} would do; a smaller batch needs about the same share"


def _infeasible(
    phase: PhasePlan, base: int, limit: int, budget: Budget, largest: int
) -> Diagnostic:
    """Why a phase does not fit into `limit` reusable bytes beside `base` others.

    largest: the reusable bytes of the plain plan, of which a share is one.
    """
    step = phase.steps[phase.peak_step()]
    hint = "give it more memory, or lower data.batch_size (`--batch max` finds the largest)"
    if budget.nbytes is None:
        hint = share_that_would_do(phase.reusable_bytes, largest)
    if not phase.graph.is_train:
        hint = f"evaluation keeps nothing that could be computed again: {hint}"
    return Diagnostic(
        "the run does not fit into memory.budget",
        budget.place,
        expected=f"at least {base + phase.reusable_bytes:,} bytes, of all plans that are tried: "
        f"in phase {phase.name!r} {step.title} needs {phase.reusable_bytes:,} beside the {base:,} "
        "of parameters, states and inputs",
        got=f"{base + limit:,} bytes, which leave {max(limit, 0):,} beside them",
        hint=hint,
    )


class PhaseFitting:
    """The plans of one phase, of which the plain one is given."""

    def __init__(
        self,
        plain: Plain,
        pinned: tuple[Block, ...],
        sharing: Sharing,
        machine: Machine | None,
    ) -> None:
        self._plain, self._pinned, self._sharing = plain.plan, pinned, sharing
        self._fitting = BudgetPlanner(plain.graph, sharing, machine)

    def within(self, limit: int) -> PhasePlan | None:
        """The fastest plan found that needs no more than `limit` reusable bytes."""
        plans = map(self._planned, self._fitting.candidates(limit))
        return next((plan for plan in plans if plan.reusable_bytes <= limit), None)

    def least(self) -> PhasePlan:
        """The plan found that needs least; the plain one where no other needs less."""
        plans = map(self._planned, self._fitting.least()[:_PLACED])
        return min([self._plain, *plans], key=lambda plan: plan.reusable_bytes)

    def _planned(self, graph: Graph) -> PhasePlan:
        planned = place(self._plain.name, *shared(graph, self._sharing), self._pinned)
        recomputed = self._fitting.recomputed(graph, self._plain.reusable_bytes)
        return replace(planned, order=_BY_STAGES, recomputed=recomputed)


class BudgetPlanner:
    """The orders of one training step that need less than the plain one.

    Adding in place, which depends on the order and lets no more live at once, comes after.
    """

    def __init__(self, graph: Graph, sharing: Sharing, machine: Machine | None) -> None:
        self.graph, self._sharing = graph, sharing
        self._seconds = StepSeconds(machine)
        self._known: dict[int, tuple[Graph, int]] = {}

    def candidates(self, limit: int) -> Iterator[Graph]:
        """Graphs that may fit into `limit` reusable bytes, the best first.

        By their live bytes alone: an allocator may need more. They end with those that need least,
        which are always the same, so that a limit that one of them needs can be met.
        """
        orders = self._orders
        if not orders:
            return
        low, high = 0, len(orders)
        while low < high:
            middle = (low + high) // 2
            if self._peak(orders[middle]) <= limit:
                high = middle
            else:
                low = middle + 1
        near = orders[max(0, low - _NEAR_ORDERS) : low + _NEAR_ORDERS]
        tried = dict.fromkeys([*near, *orders[-_LAST_ORDERS:]])
        yield from (self._graph(slots) for slots in tried if self._peak(slots) <= limit)

    def least(self) -> list[Graph]:
        """The graphs that need least, that which needs least first."""
        return [
            self._graph(slots) for slots in sorted(self._orders[-_LAST_ORDERS:], key=self._peak)
        ]

    def recomputed(self, graph: Graph, plain_bytes: int) -> Recomputed:
        """What a candidate makes again."""
        repeated = [step for step in graph.steps if step.repeats is not None]
        return Recomputed(
            steps=tuple(step.repeats or "" for step in repeated),
            plain_bytes=plain_bytes,
            step_s=sum(map(self._seconds, self.graph.steps)),
            extra_s=sum(map(self._seconds, repeated)),
        )

    @cached_property
    def _stages(self) -> tuple[Segment, ...]:
        return stages_of(self.graph, self._seconds.is_cheap)

    @cached_property
    def _plans(self) -> ChainPlans:
        sizes = StageSizes(self.graph, self._stages, self._seconds)
        peak = peak_bytes(self.graph, storage_of(self.graph, self._sharing))
        slot = max(64, -(-int(_SLACK * peak) // _SLOTS))
        return ChainPlans(sizes.chain(), slot, _SLOTS)

    @cached_property
    def _orders(self) -> list[int]:
        """Memories in slots whose fastest orders differ, the fastest and largest first."""
        if not self._stages:
            return []
        seconds = self._plans.seconds
        fewer = np.concatenate(([np.inf], seconds[:-1]))
        return [int(slots) for slots in np.flatnonzero(seconds < fewer)[::-1]]

    def _graph(self, slots: int) -> Graph:
        return self._made(slots)[0]

    def _peak(self, slots: int) -> int:
        return self._made(slots)[1]

    def _made(self, slots: int) -> tuple[Graph, int]:
        """The graph of an order and the bytes alive at its peak."""
        if slots not in self._known:
            actions = self._plans.actions(slots)
            graph = recompute(self.graph, self._stages, actions, self._seconds.is_cheap)
            peak = peak_bytes(graph, storage_of(graph, self._sharing))
            self._known[slots] = graph, peak
        return self._known[slots]
