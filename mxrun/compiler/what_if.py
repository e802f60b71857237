"""What-if analysis: bytes and time of a plan with one recomputed step, or within a budget.

Each answer is a complete plan with offsets, so its bytes include the effects of placement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.machine import Machine
from mxrun.graph.cost import StepSeconds
from mxrun.graph.graph import Graph, Step, StepKind, ValueId
from mxrun.planner.liveness import peak_bytes
from mxrun.planner.place import place
from mxrun.planner.plan import PhasePlan, Plan
from mxrun.planner.remat.budget import Budget, PhaseBudgetPlanner, Plain
from mxrun.planner.remat.recompute import ReplayBuilder
from mxrun.planner.remat.segments import Segment, forward_steps
from mxrun.planner.storage import Sharing, assign_storage, storage_of

# Number of steps tried, those with the largest outputs live at the peak, and number of those that
# lower it to be placed.
_TRIED, _PLACED = 24, 6


@dataclass(frozen=True)
class PlanEffect:
    """Bytes and time of a changed plan.

    planned_bytes: size of the arena. extra_s: extra seconds of the timed phase. peak: name of the
    step at the peak. step: the recomputed forward step, if there is a single one.
    """

    planned_bytes: int
    extra_s: float
    peak: str
    step: str = ""


def step_seconds(plan: Plan, phase: str, machine: Machine | None) -> float:
    """Return the predicted seconds of one step of a phase."""
    return sum(map(StepSeconds(machine), plan.phases[phase].steps))


class Budgets:
    """Plans of a plain plan's network within budgets; measured sizes are reused between budgets.

    apart: the same plan without add-to. timed: the phase whose extra time is reported.
    """

    def __init__(self, plan: Plan, apart: Plan, machine: Machine | None, timed: str) -> None:
        self._plan, self._timed = plan, timed
        plains = {name: Plain(plan.phases[name], apart.phases[name].graph) for name in plan.phases}
        self._planners = {
            name: PhaseBudgetPlanner(plain, plan.pinned, Sharing(), machine)
            for name, plain in plains.items()
        }

    def share(self, share: float) -> PlanEffect | None:
        """Return the fastest plan found within a share of the reusable bytes, or None."""
        return self._within(Budget(share=share))

    def is_met(self, nbytes: int) -> bool:
        """Return whether a plan with an arena of at most `nbytes` bytes is found."""
        return self._within(Budget(nbytes)) is not None

    def least(self) -> PlanEffect:
        """Return the plan with the least memory of all found."""
        return self._answer({name: planner.least() for name, planner in self._planners.items()})

    def _within(self, budget: Budget) -> PlanEffect | None:
        limit = budget.reusable_bytes(self._plan.phases, self._plan.pinned_bytes)
        phases = {}
        for name, plain in self._plan.phases.items():
            fits = plain.reusable_bytes <= limit
            phases[name] = plain if fits else self._planners[name].within(limit)
        found = {name: phase for name, phase in phases.items() if phase is not None}
        return self._answer(found) if len(found) == len(phases) else None

    def _answer(self, phases: Mapping[str, PhasePlan]) -> PlanEffect:
        recomputed = phases[self._timed].recomputed
        return _answer(
            replace(self._plan, phases=phases), 0.0 if recomputed is None else recomputed.extra_s
        )


def single_steps(plan: Plan, apart: Plan, machine: Machine | None, timed: str) -> list[PlanEffect]:
    """Return the cheap forward steps whose recomputation alone lowers the peak of a plain plan.

    The step that saves most bytes comes first. Empty if the largest phase has no backward steps.
    apart: the same plan without add-to. timed: the phase whose extra time is reported; all phases
    with the step recompute it.
    """
    seconds = StepSeconds(machine)
    segments = {name: _one_stage(phase.graph) for name, phase in apart.phases.items()}
    segments = {name: segment for name, segment in segments.items() if segment.forward}
    largest = plan.largest_phase
    if largest.name not in segments:
        return []
    found: list[tuple[int, str, dict[str, Graph]]] = []
    for step in _candidates(largest, segments[largest.name], seconds):
        graphs = {
            name: _with_recomputed(apart.phases[name].graph, segment, step.name)
            for name, segment in segments.items()
        }
        peak = max(peak_bytes(each, storage_of(each, Sharing())) for each in graphs.values())
        if peak < largest.lower_bound_bytes:
            found.append((peak, step.name, graphs))
    best = sorted(found, key=lambda each: each[:2])[:_PLACED]
    answers = [
        _answer(_placed(plan, graphs), _recompute_s(graphs[timed], seconds), name)
        for _, name, graphs in best
    ]
    lower = [answer for answer in answers if answer.planned_bytes < plan.planned_bytes]
    return sorted(lower, key=lambda answer: (answer.planned_bytes, answer.extra_s, answer.step))


def _one_stage(graph: Graph) -> Segment:
    """Return the entire step as one segment, its backward in the order of the graph."""
    forward = tuple(forward_steps(graph))
    known = {step.name for step in forward}
    others = [step for step in graph.steps if step.name not in known]
    return Segment(
        given=None,
        forward=forward,
        backward=tuple(step for step in others if step.kind is not StepKind.UPDATE),
        updates=tuple(step for step in others if step.kind is StepKind.UPDATE),
    )


def _candidates(phase: PhasePlan, segment: Segment, seconds: StepSeconds) -> list[Step]:
    """Return cheap steps whose outputs are live across the peak, those with most bytes first."""
    peak = phase.peak_step()
    makers: Mapping[ValueId, Step] = {
        value: step
        for step in segment.forward
        if seconds.is_cheap(step) and step.kernel is not None and not step.kernel.is_view
        for value in step.writes
    }
    sizes: dict[str, int] = {}
    steps: dict[str, Step] = {}
    for block in phase.blocks:
        if not block.first < peak < block.last:
            continue
        steps |= {makers[value].name: makers[value] for value in block.values if value in makers}
        for name in {makers[value].name for value in block.values if value in makers}:
            sizes[name] = sizes.get(name, 0) + block.nbytes
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))
    return [steps[name] for name in largest[:_TRIED]]


def _with_recomputed(graph: Graph, segment: Segment, name: str) -> Graph:
    """Return the graph in which one step's output is dropped and recomputed."""
    replay = ReplayBuilder(graph, lambda step: step.name == name, set(graph.results.values()))
    replay.forward(segment)
    replay.drop_cheap(segment)
    replay.backward(segment)
    return replay.graph(segment.updates)


def _recompute_s(graph: Graph, seconds: StepSeconds) -> float:
    return sum(seconds(step) for step in graph.steps if step.repeats is not None)


def _placed(plan: Plan, graphs: Mapping[str, Graph]) -> Plan:
    placed = {}
    for name, graph in graphs.items():
        placed[name] = place(name, *assign_storage(graph, Sharing()), plan.pinned)
    return replace(plan, phases={**plan.phases, **placed})


def _answer(plan: Plan, extra_s: float, step: str = "") -> PlanEffect:
    phase = plan.largest_phase
    return PlanEffect(plan.planned_bytes, extra_s, phase.steps[phase.peak_step()].name, step)
