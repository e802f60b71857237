"""The plan: one frozen value that says where every byte of a run lies and what runs when.

One arena per context: [pinned: parameters, optimizer, auxiliary | io slots | reusable: the largest
of the phases]. Offsets and block sizes are multiples of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from mxrun.base.tensor import TensorSpec
from mxrun.graph.graph import Graph, MemoryClass, Step, ValueId
from mxrun.planner.concat_in_place import BufferSlice
from mxrun.planner.hint import Hint
from mxrun.planner.liveness import alive


@dataclass(frozen=True)
class Block:
    """Consecutive bytes of the arena with one owner at a time.

    values: the tensors that lie in it, by their numbers in the phase's graph (more than one where
        they share storage); none in a scratchpad and in a pinned block, which all phases share.
    first, last: steps during which it is alive, half-open.
    """

    name: str
    memory_class: MemoryClass
    offset: int
    nbytes: int
    first: int
    last: int
    values: tuple[ValueId, ...]

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class Recomputed:
    """What backward makes again: the forward steps, each as often as it runs again.

    plain_bytes: the reusable bytes of the plain order. step_s: the seconds that its steps will
        probably take; extra_s: those of the repeated ones.
    """

    steps: tuple[str, ...]
    plain_bytes: int
    step_s: float
    extra_s: float

    @property
    def extra(self) -> float:
        """The extra time as a fraction of the plain step's."""
        return self.extra_s / self.step_s


@dataclass(frozen=True)
class PhasePlan:
    """One sequence of steps over the arena: a training step, or an evaluation step.

    offsets: where each value lies; scratch: where each step's workspace lies.
    parts: the values that lie within the rows of others.
    reusable_bytes and the bounds count this phase's part of the reusable region only; proved_bytes
    is what no placement can do without, which is the lower bound or was shown to be more.
    """

    name: str
    graph: Graph
    offsets: Mapping[ValueId, int]
    parts: Mapping[ValueId, BufferSlice]
    scratch: Mapping[str, int]
    blocks: tuple[Block, ...]
    hints: tuple[Hint, ...]
    reusable_bytes: int
    lower_bound_bytes: int
    proved_bytes: int
    naive_bytes: int
    in_place_only_bytes: int
    # The name of the order of steps, and what is alive at the peak of any order at least; None
    # where that is not known.
    order: str = "declared"
    any_order_bytes: int | None = None
    # What backward makes again to fit into a budget; None of a plain order.
    recomputed: Recomputed | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in the order they run."""
        return self.graph.steps

    def implementations(self) -> dict[str, str]:
        """The implementation chosen for each step that calls something; a repeated one has its."""
        return {
            step.name: step.kernel.implementation
            for step in self.steps
            if step.kernel is not None and not step.kernel.is_view and step.repeats is None
        }

    def peak_step(self) -> int:
        """The first step at which the most reusable bytes are alive."""
        totals = self.live_bytes()
        return totals.index(max(totals)) if totals else 0

    def live_bytes(self) -> list[int]:
        """Reusable bytes alive at each step."""
        lives = ((block.first, block.last, block.nbytes) for block in self.blocks)
        return alive(lives, len(self.steps))


@dataclass(frozen=True)
class ClassBytes:
    """Bytes of one memory class: all its blocks, and those alive at the peak."""

    total_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Plan:
    """Everything known before the first step; `specs` are those of the pinned tensors."""

    phases: Mapping[str, PhasePlan]
    pinned: tuple[Block, ...]
    specs: Mapping[str, TensorSpec]
    threads: int
    planning_ms: float
    # What the arena may have at most, where a budget says so.
    budget_bytes: int | None = None

    @property
    def pinned_bytes(self) -> int:
        """Parameters, optimizer and auxiliary states, and io slots."""
        return sum(block.nbytes for block in self.pinned)

    @property
    def reusable_bytes(self) -> int:
        """What the phases take in turns."""
        return self.planned_bytes - self.pinned_bytes

    @property
    def largest_phase(self) -> PhasePlan:
        """The phase that needs most."""
        return max(self.phases.values(), key=lambda phase: phase.reusable_bytes)

    def _largest(self, figure: str) -> int:
        sizes = (getattr(phase, figure) for phase in self.phases.values())
        return self.pinned_bytes + max(sizes, default=0)

    @property
    def planned_bytes(self) -> int:
        """Size of the arena."""
        return self._largest("reusable_bytes")

    @property
    def lower_bound_bytes(self) -> int:
        """No arena for the chosen order of steps can be smaller."""
        return self._largest("lower_bound_bytes")

    @property
    def proved_bytes(self) -> int:
        """What no arena can do without, by the lower bound or by what was shown beyond it."""
        return self._largest("proved_bytes")

    @property
    def any_order_bytes(self) -> int | None:
        """No arena for these steps in another order can be smaller; None where that is not known:
        where a budget changed the steps, or tensors are joined or added to.
        """
        found = [phase.any_order_bytes for phase in self.phases.values()]
        known = [nbytes for nbytes in found if nbytes is not None]
        return self.pinned_bytes + max(known, default=0) if len(known) == len(found) else None

    @property
    def naive_bytes(self) -> int:
        """The arena if every tensor had memory of its own."""
        return self._largest("naive_bytes")

    @property
    def in_place_only_bytes(self) -> int:
        """The arena with views and in-place sharing, but no reuse of freed blocks."""
        return self._largest("in_place_only_bytes")

    @property
    def proved_optimal(self) -> bool:
        """Whether the arena is as small as the order of steps allows."""
        return self.planned_bytes == self.proved_bytes

    def offset(self, name: str) -> int:
        """Where a pinned tensor lies; raises KeyError for what is none."""
        return self._offsets[name]

    @cached_property
    def _offsets(self) -> dict[str, int]:
        """The offsets of the pinned tensors by name."""
        return {block.name: block.offset for block in self.pinned}

    def classes(self) -> dict[str, ClassBytes]:
        """Bytes by memory class, of the phase that needs most."""
        phase = self.largest_phase
        peak = phase.peak_step()
        figures = {}
        for kind in MemoryClass:
            pinned = sum(block.nbytes for block in self.pinned if block.memory_class is kind)
            blocks = [block for block in phase.blocks if block.memory_class is kind]
            alive = [block for block in blocks if block.first <= peak < block.last]
            figures[kind.value] = ClassBytes(
                pinned + sum(block.nbytes for block in blocks),
                pinned + sum(block.nbytes for block in alive),
            )
        return figures
