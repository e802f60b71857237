"""Memory of a run's plan: figures, the peak, lifetimes of blocks and the reasons for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec
from mxrun.planner.allocator.free_list import free_list_bytes
from mxrun.planner.explain import LiveTensor, block_lifetimes, live_tensors, pinned_tensors
from mxrun.planner.hint import CONCAT_IN_PLACE
from mxrun.planner.plan import PhasePlan, Plan
from mxrun.preparation.budget import budget_figures
from mxrun.preparation.micro_batches import Planned
from mxrun.run.save_copy import SaveCopy


@dataclass(frozen=True)
class MemoryReport:
    """Memory of a run's plan.

    contexts: number of arenas. Sizes of arenas and their bounds are sums over all of them; the
    classes, the peak, the timeline and the blocks are those of one arena, of `arena_bytes`.
    micro_batches: number of micro-batches of each context's batch. outside: resident bytes by kind
    of a process that is ready to run the plan but has no arena; empty if the system does not report
    them, or if they were not requested. what_if: effects of other settings; None if they were not
    requested. step: what a step takes at least on a card, see `step_figures`; else None. ranks:
    number of processes that train together, of which the report is on the first. sliced: specs of
    the entire states of which each of them has a part.
    """

    name: str
    phase: str
    batch_size: int
    micro_batches: int
    contexts: int
    plan: Plan
    outside: Mapping[str, Any] = field(default_factory=dict)
    what_if: Mapping[str, Any] | None = None
    step: Mapping[str, Any] | None = None
    ranks: int = 1
    sliced: Mapping[str, TensorSpec] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        plan, count = self.plan, self.contexts
        any_order_bytes = plan.any_order_bytes
        return {
            "name": self.name,
            "phase": self.phase,
            "contexts": count,
            "ranks": self.ranks,
            "arena_bytes": plan.planned_bytes,
            "planned_bytes": count * plan.planned_bytes,
            "lower_bound_bytes": count * plan.lower_bound_bytes,
            "gap_bytes": count * (plan.planned_bytes - plan.lower_bound_bytes),
            "fragmentation": self._fragmentation(),
            "naive_bytes": count * plan.naive_bytes,
            "in_place_only_bytes": count * plan.in_place_only_bytes,
            "free_list_bytes": count * self._free_list_bytes(),
            "proved_bytes": count * plan.proved_bytes,
            "proved_optimal": plan.proved_optimal,
            "classes": {name: asdict(figures) for name, figures in plan.classes().items()},
            "hints": [hint for phase in plan.phases.values() for hint in _hints(phase)],
            "planning_ms": plan.planning_ms,
            "order": {name: phase.order for name, phase in plan.phases.items()},
            "any_order_bytes": None if any_order_bytes is None else count * any_order_bytes,
            "batch_size": self.batch_size,
            "micro_batches": self.micro_batches,
            **budget_figures(plan, count),
            "checkpoints": (
                SaveCopy.of(plan, count, self.sliced).to_json() if self.phase == "train" else None
            ),
            "peak": self._peak(),
            "timeline": self._timeline(),
            "pinned": self._pinned(),
            "blocks": self._blocks(),
            "outside": self.outside,
            "what_if": self.what_if,
            "step": self.step,
        }

    def _peak(self) -> dict[str, Any]:
        """Return the peak step and its live tensors; first and last are steps, both inclusive."""
        phase = self.plan.largest_phase
        position = phase.peak_step()
        step = phase.steps[position]
        return {
            "phase": phase.name,
            "step": position,
            "operator": step.name,
            "title": step.title,
            "op": None if step.prop is None else step.prop.type_string,
            "bytes": self.plan.pinned_bytes + phase.live_bytes()[position],
            "live": [_lifetime(live) for live in live_tensors(phase, self.plan.pinned, position)],
        }

    def _fragmentation(self) -> float:
        """Return the relative excess of the arena over the lower bound."""
        bound = self.plan.lower_bound_bytes
        return self.plan.planned_bytes / bound - 1 if bound else 0.0

    def _free_list_bytes(self) -> int:
        """Return the size of the arena with a free list of blocks, as in MXNet."""
        sizes = (
            free_list_bytes(
                [block.nbytes for block in phase.blocks],
                [block.first for block in phase.blocks],
                [block.last for block in phase.blocks],
            )
            for phase in self.plan.phases.values()
        )
        return self.plan.pinned_bytes + max(sizes, default=0)

    def _pinned(self) -> list[dict[str, Any]]:
        """Return the blocks that are live during all phases."""
        return [_placed(live) for live in pinned_tensors(self.plan.largest_phase, self.plan.pinned)]

    def _blocks(self) -> dict[str, list[dict[str, Any]]]:
        """Return the reusable blocks by phase; first and last are steps, both inclusive.

        tensors: those that a block holds one after the other, with their steps.
        """
        return {
            name: [
                {**_lifetime(each.whole), "tensors": [_held(live) for live in each.held]}
                for each in block_lifetimes(phase)
            ]
            for name, phase in self.plan.phases.items()
        }

    def _timeline(self) -> dict[str, Any]:
        """Return, by phase, the steps' names and the live bytes of the arena at each."""
        return {
            name: {
                "operators": [step.name for step in phase.steps],
                "bytes": [self.plan.pinned_bytes + live for live in phase.live_bytes()],
            }
            for name, phase in self.plan.phases.items()
        }


def _hints(phase: PhasePlan) -> Iterator[dict[str, Any]]:
    """Yield each opportunity to share memory with the bytes that it saves or would save."""
    sizes = {value.name: value.spec.nbytes for value in phase.graph.values}
    for hint in phase.hints:
        # For concat in place, the size of the slice and not of the parent buffer.
        yield asdict(hint) | {
            "bytes": sizes[hint.source if hint.kind == CONCAT_IN_PLACE else hint.target]
        }


def _placed(live: LiveTensor) -> dict[str, Any]:
    return {
        "tensor": live.tensor,
        "class": live.block.memory_class.value,
        "bytes": live.block.nbytes,
        "offset": live.block.offset,
        "reason": live.reason,
    }


def _lifetime(live: LiveTensor) -> dict[str, Any]:
    times = {"first": live.first, "last": live.last}
    return _placed(live) | times | {"root": live.block.name, "shared": list(live.shared)}


def _held(live: LiveTensor) -> dict[str, Any]:
    return {
        "tensor": live.tensor,
        "first": live.first,
        "last": live.last,
        "reason": live.reason,
        "shared": list(live.shared),
    }


def memory_report(run: Planned, phase: str) -> MemoryReport:
    """Return the memory of a planned run.

    phase: train (including evaluation), infer or generate.
    """
    return MemoryReport(
        name=run.built.options.name,
        phase=phase,
        batch_size=run.built.batch_size,
        micro_batches=run.built.micro_batches,
        contexts=run.built.contexts,
        ranks=run.built.ranks,
        sliced=run.built.sliced_states,
        plan=run.plan,
    )
