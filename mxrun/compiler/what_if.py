"""What a plan would need and take if one forward step ran again in backward, or within a budget.

Each answer is a plan of its own, with offsets: no bytes are promised that an allocator misses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mxrun.base.machine import Machine
from mxrun.graph.cost import StepSeconds
from mxrun.graph.graph import Graph, Step, StepKind, ValueId
from mxrun.planner.liveness import peak_bytes
from mxrun.planner.place import place
from mxrun.planner.plan import PhasePlan, Plan
from mxrun.planner.remat.budget import Budget, PhaseFitting, Plain
from mxrun.planner.remat.recompute import ReplayBuilder
from mxrun.planner.remat.segments import Segment, forward_steps
from mxrun.planner.storage import Sharing, shared, storage_of

# Of the steps whose outputs are alive at the peak, the largest so many are tried, and of those that
# lower it the best are placed.
_TRIED, _PLACED = 24, 6


@dataclass(frozen=True)
class Answer:
    """What a change comes to: `planned_bytes` of the whole arena, and how many seconds more the
    phase takes that was asked about.

    peak: the step that sets those bytes. step: the forward step that runs again, where it is one.
    """

    planned_bytes: int
    extra_s: float
    peak: str
    step: str = ""


def step_seconds(plan: Plan, phase: str, machine: Machine | None) -> float:
    """What one step of a phase will probably take."""
    return sum(map(StepSeconds(machine), plan.phases[phase].steps))


class Budgets:
    """What a plain plan becomes within budgets; what is measured for one serves the next.

    apart: the same plan with every sum in a step of its own. timed: the phase whose time is told.
    """

    def __init__(self, plan: Plan, apart: Plan, machine: Machine | None, timed: str) -> None:
        self._plan, self._timed = plan, timed
        plains = {name: Plain(plan.phases[name], apart.phases[name].graph) for name in plan.phases}
        self._fittings = {
            name: PhaseFitting(plain, plan.pinned, Sharing(), machine)
            for name, plain in plains.items()
        }

    def share(self, share: float) -> Answer | None:
        """The fastest plan found in a share of the reusable bytes; None where there is none."""
        return self._within(Budget(share=share))

    def is_met(self, nbytes: int) -> bool:
        """Whether a plan is found in so many bytes of the whole arena."""
        return self._within(Budget(nbytes)) is not None

    def least(self) -> Answer:
        """The plan found that needs least."""
        return self._answer({name: fitting.least() for name, fitting in self._fittings.items()})

    def _within(self, budget: Budget) -> Answer | None:
        limit = budget.reusable_bytes(self._plan.phases, self._plan.pinned_bytes)
        phases = {}
        for name, plain in self._plan.phases.items():
            fits = plain.reusable_bytes <= limit
            phases[name] = plain if fits else self._fittings[name].within(limit)
        found = {name: phase for name, phase in phases.items() if phase is not None}
        return self._answer(found) if len(found) == len(phases) else None

    def _answer(self, phases: Mapping[str, PhasePlan]) -> Answer:
        made = phases[self._timed].recomputed
        return _answer(replace(self._plan, phases=phases), 0.0 if made is None else made.extra_s)


def single_steps(plan: Plan, apart: Plan, machine: Machine | None, timed: str) -> list[Answer]:
    """Cheap forward steps of which each alone, run again, lowers a plain plan's peak, best first.

    The best saves most bytes. None where no phase has backward steps. apart: the same plan with
    every sum in a step of its own. timed: the phase whose time is told; all phases with the step
    run it again.
    """
    seconds = StepSeconds(machine)
    wholes = {name: _one_stage(phase.graph) for name, phase in apart.phases.items()}
    wholes = {name: whole for name, whole in wholes.items() if whole.forward}
    largest = plan.largest_phase
    if largest.name not in wholes:
        return []
    found: list[tuple[int, str, dict[str, Graph]]] = []
    for step in _candidates(largest, wholes[largest.name], seconds):
        graphs = {
            name: _running_again(apart.phases[name].graph, whole, step.name)
            for name, whole in wholes.items()
        }
        peak = max(peak_bytes(each, storage_of(each, Sharing())) for each in graphs.values())
        if peak < largest.lower_bound_bytes:
            found.append((peak, step.name, graphs))
    best = sorted(found, key=lambda each: each[:2])[:_PLACED]
    answers = [
        _answer(_placed(plan, graphs), _again_s(graphs[timed], seconds), name)
        for _, name, graphs in best
    ]
    lower = [answer for answer in answers if answer.planned_bytes < plan.planned_bytes]
    return sorted(lower, key=lambda answer: (answer.planned_bytes, answer.extra_s, answer.step))


def _one_stage(graph: Graph) -> Segment:
    """The whole step, its backward in the order of the graph."""
    forward = tuple(forward_steps(graph))
    known = {step.name for step in forward}
    others = [step for step in graph.steps if step.name not in known]
    return Segment(
        given=None,
        forward=forward,
        backward=tuple(step for step in others if step.kind is not StepKind.UPDATE),
        updates=tuple(step for step in others if step.kind is StepKind.UPDATE),
    )


def _candidates(phase: PhasePlan, whole: Segment, seconds: StepSeconds) -> list[Step]:
    """Cheap steps by the bytes of theirs that lie at the peak while backward still waits."""
    peak = phase.peak_step()
    makers: Mapping[ValueId, Step] = {
        value: step
        for step in whole.forward
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


def _running_again(graph: Graph, whole: Segment, name: str) -> Graph:
    """The graph in which the output of one step is not kept."""
    emission = ReplayBuilder(graph, lambda step: step.name == name, set(graph.results.values()))
    emission.forward(whole)
    emission.drop_cheap(whole)
    emission.backward(whole)
    return emission.graph(whole.updates)


def _again_s(graph: Graph, seconds: StepSeconds) -> float:
    return sum(seconds(step) for step in graph.steps if step.repeats is not None)


def _placed(plan: Plan, graphs: Mapping[str, Graph]) -> Plan:
    placed = {}
    for name, graph in graphs.items():
        placed[name] = place(name, *shared(graph, Sharing()), plan.pinned)
    return replace(plan, phases={**plan.phases, **placed})


def _answer(plan: Plan, extra_s: float, step: str = "") -> Answer:
    phase = plan.largest_phase
    return Answer(plan.planned_bytes, extra_s, phase.steps[phase.peak_step()].name, step)
