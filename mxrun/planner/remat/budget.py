"""Memory budgets: training steps fitted into a byte limit by rematerialisation, and their costs.

The segments of the step are measured one by one. The fastest schedules by these measures are built
as graphs, whose true live bytes decide. The plain plan is used where it fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.machine import Machine
from mxrun.base.once import cached_property
from mxrun.graph.cost import StepSeconds
from mxrun.graph.graph import Graph
from mxrun.planner.liveness import peak_bytes
from mxrun.planner.place import place
from mxrun.planner.plan import Block, PhasePlan, Recomputed
from mxrun.planner.remat.recompute import recompute
from mxrun.planner.remat.segment_costs import SegmentCosts
from mxrun.planner.remat.segments import Segment, cut_segments
from mxrun.planner.remat.solver import ChainPlans
from mxrun.planner.storage import Sharing, assign_storage, storage_of

# The measured sizes err in both directions, so schedules are searched in up to this multiple of the
# plain peak memory.
_SLACK = 1.5
_SLOTS = 1500
# Number of schedules tried next to the one that the measures suggest (faster ones may fit), and of
# those with the least memory, in case none of the former fits.
_ADJACENT_ORDERS, _LAST_ORDERS = 4, 12
# Name of schedules by segments, some of which run forward again.
_BY_STAGES = "by stages"
# Number of the schedules with the least memory that are placed.
_PLACED = 3


class OverBudget(UserError):
    """Error for a run that does not fit its memory budget.

    least_bytes: size of the smallest arena found.
    """

    def __init__(self, diagnostic: Diagnostic, least_bytes: int) -> None:
        super().__init__(diagnostic)
        self.least_bytes = least_bytes


@dataclass(frozen=True)
class Budget:
    """Limit of the entire arena in bytes, or as a share of the plain plan's reusable bytes.

    least: use the plan with the least memory instead of the fastest that fits. place: location of
    the budget in the config.
    """

    nbytes: int | None = None
    share: float | None = None
    least: bool = False
    place: SourceLocation | None = None

    def reusable_bytes(self, phases: Mapping[str, PhasePlan], base: int) -> int:
        """Return the limit of the reusable region, given plain phases and `base` pinned bytes."""
        if self.nbytes is not None:
            return self.nbytes - base
        largest = _largest(phases)
        return largest if self.share is None else int(self.share * largest)


@dataclass(frozen=True)
class Plain:
    """Phase without rematerialisation; graph: its graph before the add-to pass."""

    plan: PhasePlan
    graph: Graph


def fit_to_budget(
    phases: Mapping[str, Plain],
    pinned: tuple[Block, ...],
    budget: Budget,
    sharing: Sharing,
    machine: Machine | None,
) -> tuple[dict[str, PhasePlan], int]:
    """Return the phases within the budget, and the limit of the entire arena in bytes.

    sharing: as in the plain plans. Evaluation uses the same arena and must fit as well, although
    nothing can be recomputed in it.

    Raises OverBudget with the smallest arena found and the step at its peak if the budget is too
    small.
    """
    base = sum(block.nbytes for block in pinned)
    plans = {name: plain.plan for name, plain in phases.items()}
    limit, largest = budget.reusable_bytes(plans, base), _largest(plans)
    found: dict[str, PhasePlan] = {}
    beyond = []
    for name, plain in phases.items():
        planner = PhaseBudgetPlanner(plain, pinned, sharing, machine)
        if budget.least:
            found[name] = planner.least()
        elif plain.plan.reusable_bytes <= limit:
            found[name] = plain.plan
        else:
            found[name] = planner.within(limit) or planner.least()
            if found[name].reusable_bytes > limit:
                beyond.append(found[name])
    if beyond:
        largest_phase = max(beyond, key=lambda phase: phase.reusable_bytes)
        diagnostic = _infeasible(largest_phase, base, limit, budget, largest)
        raise OverBudget(diagnostic, base + largest_phase.reusable_bytes)
    return found, base + limit


def _largest(phases: Mapping[str, PhasePlan]) -> int:
    return max((phase.reusable_bytes for phase in phases.values()), default=0)


def sufficient_share(required_bytes: int, reusable_bytes: int) -> str:
    """Return the hint for a budget given as a share: the least sufficient percentage.

    required_bytes: least reusable bytes of all plans tried. reusable_bytes: those of the plain
    plan. The percentage has two decimals. If no plan needs less than the plain one, the hint names
    what does.
    """
    if required_bytes >= reusable_bytes:
        return (
            "no plan that was tried needs less than without a budget: a smaller data.batch_size "
            "needs less; memory.micro_batches=true splits the batch, unless layers mix its samples "
            "or carry their states to the next batch; or leave memory.budget out"
        )
    hundredths = -(-required_bytes * 10_000 // reusable_bytes)
    # The config reads the percentage as a float, which may round below the required bytes.
    while int(float(f"{hundredths / 100:.2f}") / 100 * reusable_bytes) < required_bytes:
        hundredths += 1
    share = f"{hundredths / 100:.2f}%"
    return f"memory.budget={share} would do; a smaller batch needs about the same share"


def _infeasible(
    phase: PhasePlan, base: int, limit: int, budget: Budget, largest: int
) -> Diagnostic:
    """Describe why a phase does not fit `limit` reusable bytes beside `base` pinned bytes.

    largest: reusable bytes of the plain plan, to which a share refers.
    """
    step = phase.steps[phase.peak_step()]
    hint = "give it more memory, or lower data.batch_size (`--batch max` finds the largest)"
    if budget.nbytes is None:
        hint = sufficient_share(phase.reusable_bytes, largest)
    if not phase.graph.is_train:
        hint = f"evaluation saves nothing that could be recomputed: {hint}"
    return Diagnostic(
        "the run does not fit into memory.budget",
        budget.place,
        expected=f"at least {base + phase.reusable_bytes:,} bytes, of all plans that are tried: "
        f"in phase {phase.name!r} {step.title} needs {phase.reusable_bytes:,} beside the {base:,} "
        "of parameters, states and inputs",
        got=f"{base + limit:,} bytes, which leave {max(limit, 0):,} beside them",
        hint=hint,
    )


class PhaseBudgetPlanner:
    """Plans of one phase with less memory than its plain plan."""

    def __init__(
        self,
        plain: Plain,
        pinned: tuple[Block, ...],
        sharing: Sharing,
        machine: Machine | None,
    ) -> None:
        self._plain, self._pinned, self._sharing = plain.plan, pinned, sharing
        self._planner = BudgetPlanner(plain.graph, sharing, machine)

    def within(self, limit: int) -> PhasePlan | None:
        """Return the fastest plan found with at most `limit` reusable bytes, or None."""
        plans = map(self._planned, self._planner.candidates(limit))
        return next((plan for plan in plans if plan.reusable_bytes <= limit), None)

    def least(self) -> PhasePlan:
        """Return the plan with the least memory of all found, the plain one included."""
        plans = map(self._planned, self._planner.least()[:_PLACED])
        return min([self._plain, *plans], key=lambda plan: plan.reusable_bytes)

    def _planned(self, graph: Graph) -> PhasePlan:
        planned = place(self._plain.name, *assign_storage(graph, self._sharing), self._pinned)
        recomputed = self._planner.recomputed(graph, self._plain.reusable_bytes)
        return replace(planned, order=_BY_STAGES, recomputed=recomputed)


class BudgetPlanner:
    """Schedules of one training step that need less memory than the plain one.

    The add-to pass, which depends on the schedule and does not raise peak memory, comes later.
    """

    def __init__(self, graph: Graph, sharing: Sharing, machine: Machine | None) -> None:
        self.graph, self._sharing = graph, sharing
        self._seconds = StepSeconds(machine)
        self._known: dict[int, tuple[Graph, int]] = {}

    def candidates(self, limit: int) -> Iterator[Graph]:
        """Yield graphs whose peak memory fits `limit`, the fastest first.

        Peak memory is the maximum of the live bytes; the placement may need more. The last graphs
        are those with the least memory, which do not depend on `limit`, so that a limit that one of
        them meets can be met.
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
        adjacent = orders[max(0, low - _ADJACENT_ORDERS) : low + _ADJACENT_ORDERS]
        tried = dict.fromkeys([*adjacent, *orders[-_LAST_ORDERS:]])
        yield from (self._graph(slots) for slots in tried if self._peak(slots) <= limit)

    def least(self) -> list[Graph]:
        """Return the graphs with the lowest peak memory, in ascending order."""
        return [
            self._graph(slots) for slots in sorted(self._orders[-_LAST_ORDERS:], key=self._peak)
        ]

    def recomputed(self, graph: Graph, plain_bytes: int) -> Recomputed:
        """Return the recomputed steps of a candidate and their predicted time."""
        repeated = [step for step in graph.steps if step.repeats is not None]
        return Recomputed(
            steps=tuple(step.repeats or "" for step in repeated),
            plain_bytes=plain_bytes,
            step_s=sum(map(self._seconds, self.graph.steps)),
            extra_s=sum(map(self._seconds, repeated)),
        )

    @cached_property
    def _stages(self) -> tuple[Segment, ...]:
        return cut_segments(self.graph, self._seconds.is_cheap)

    @cached_property
    def _plans(self) -> ChainPlans:
        sizes = SegmentCosts(self.graph, self._stages, self._seconds)
        peak = peak_bytes(self.graph, storage_of(self.graph, self._sharing))
        slot = max(64, -(-int(_SLACK * peak) // _SLOTS))
        return ChainPlans(sizes.chain(), slot, _SLOTS)

    @cached_property
    def _orders(self) -> list[int]:
        """Numbers of slots with distinct fastest schedules, the fastest and largest first."""
        if not self._stages:
            return []
        seconds = self._plans.seconds
        fewer = np.concatenate(([np.inf], seconds[:-1]))
        return [int(slots) for slots in np.flatnonzero(seconds < fewer)[::-1]]

    def _graph(self, slots: int) -> Graph:
        return self._replayed(slots)[0]

    def _peak(self, slots: int) -> int:
        return self._replayed(slots)[1]

    def _replayed(self, slots: int) -> tuple[Graph, int]:
        """Return the graph of a schedule and its peak memory in bytes; results are cached."""
        if slots not in self._known:
            actions = self._plans.actions(slots)
            graph = recompute(self.graph, self._stages, actions, self._seconds.is_cheap)
            peak = peak_bytes(graph, storage_of(graph, self._sharing))
            self._known[slots] = graph, peak
        return self._known[slots]
