"""Plan: frozen record of the schedule and of the offset of every byte of a run.

One arena per context: [pinned: parameters, optimizer, auxiliary | io slots | reusable: the largest
of the phases]. Offsets and block sizes are multiples of the device's alignment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.once import cached_property
from mxrun.base.tensor import TensorSpec
from mxrun.graph.carried import is_evaluation_state
from mxrun.graph.graph import Graph, MemoryClass, Step, ValueId
from mxrun.operator.kernel import Handles, Kernel
from mxrun.operator.launch import Handle
from mxrun.planner.concat_in_place import BufferSlice
from mxrun.planner.hint import Hint
from mxrun.planner.liveness import lifetimes_to_live_bytes


@dataclass(frozen=True)
class Block:
    """Contiguous bytes of the arena during one lifetime.

    values: the tensors stored in the block, by their numbers in the phase's graph; more than one if
    they share storage; none for a workspace or a pinned block, which all phases share. first, last:
    the lifetime in steps, half-open.
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
        """End offset in bytes, exclusive."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class Recomputed:
    """Forward steps that backward recomputes, each listed as often as it runs again.

    plain_bytes: reusable bytes of the plan without recomputation. step_s: predicted seconds of that
    plan's steps. extra_s: predicted seconds of the recomputed steps.
    """

    steps: tuple[str, ...]
    plain_bytes: int
    step_s: float
    extra_s: float

    @property
    def extra(self) -> float:
        """Extra time as a fraction of the plain step's time: extra_s / step_s."""
        return self.extra_s / self.step_s


@dataclass(frozen=True)
class PhasePlan:
    """Schedule and placement of one phase: a training step, or an evaluation step.

    offsets: arena offset of each value. scratch: arena offset of each step's workspace. parts:
    values that are slices of parent buffers. reusable_bytes and the bounds count this phase's part
    of the reusable region only. lower_bound_bytes: maximum of the live bytes. proved_bytes: size
    below which no placement exists; the lower bound, or more if the search proved it.
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
    # Name of the schedule, and the lower bound on peak memory over all schedules; None if unknown.
    order: str = "declared"
    any_order_bytes: int | None = None
    # Steps that backward recomputes to fit a budget; None without recomputation.
    recomputed: Recomputed | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Steps in execution order."""
        return self.graph.steps

    def handles(self, step: Step, place: Callable[[int], Handle]) -> Handles:
        """Return the handles of a step's tensors; `place` gives that of an offset in the plan."""

        def handle(value: ValueId | None) -> Handle | None:
            if value is None:
                return None
            found, part = place(self.offsets.get(value, 0)), self.parts.get(value)
            return found if part is None else replace(found, pitch=part.pitch)

        def group(values: Sequence[ValueId | None]) -> tuple[Handle | None, ...]:
            return tuple(map(handle, values))

        assert step.kernel is not None
        outputs = len(step.kernel.outputs)
        return Handles(
            inputs=group(step.inputs),
            outputs=group(step.outputs[:outputs]),
            extra_outputs=group(step.outputs[outputs:]),
            workspace=place(self.scratch[step.name]) if step.kernel.workspace_bytes else None,
        )

    def implementations(self) -> dict[str, str]:
        """Return the implementation selected for each step with a kernel, also within loops.

        Views are left out, and so are repeated steps, which have the implementation of the
        original.
        """
        found: dict[str, str] = {}
        for step in self.steps:
            kernel = step.kernel
            if kernel is None or kernel.is_view or step.repeats is not None:
                continue
            found[step.name] = kernel.implementation
            if isinstance(kernel, LoopKernel):
                found |= kernel.body.implementations()
        return found

    def peak_step(self) -> int:
        """Return the position of the first step at which the live bytes reach their maximum."""
        totals = self.live_bytes()
        return totals.index(max(totals)) if totals else 0

    def live_bytes(self) -> list[int]:
        """Return the reusable bytes that are live at each step."""
        lives = ((block.first, block.last, block.nbytes) for block in self.blocks)
        return lifetimes_to_live_bytes(lives, len(self.steps))


@dataclass(frozen=True)
class LoopKernel(Kernel):
    """Kernel of a step that is a loop.

    body: the plan of one iteration, whose reusable region is the step's workspace. Its steps are
    named `LOOP/NAME`.
    """

    body: PhasePlan = field(kw_only=True, repr=False)


@dataclass(frozen=True)
class ClassBytes:
    """Bytes of one memory class: all its blocks, and those that are live at the peak."""

    total_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Plan:
    """Plan of a run: all phases, the pinned blocks, and the specs of the pinned tensors."""

    phases: Mapping[str, PhasePlan]
    pinned: tuple[Block, ...]
    specs: Mapping[str, TensorSpec]
    device: DeviceDescription
    planning_ms: float
    # Largest size of the arena that a memory budget permits.
    budget_bytes: int | None = None

    @property
    def pinned_bytes(self) -> int:
        """Bytes of parameters, optimizer and auxiliary states, and io slots."""
        return sum(block.nbytes for block in self.pinned)

    @property
    def reusable_bytes(self) -> int:
        """Bytes of the region that the phases share, one phase at a time."""
        return self.planned_bytes - self.pinned_bytes

    @property
    def largest_phase(self) -> PhasePlan:
        """Phase with the largest reusable region."""
        return max(self.phases.values(), key=lambda phase: phase.reusable_bytes)

    def _largest(self, figure: str) -> int:
        sizes = (getattr(phase, figure) for phase in self.phases.values())
        return self.pinned_bytes + max(sizes, default=0)

    @property
    def planned_bytes(self) -> int:
        """Size of the arena in bytes."""
        return self._largest("reusable_bytes")

    @property
    def lower_bound_bytes(self) -> int:
        """Lower bound on the size of the arena for the schedules in use."""
        return self._largest("lower_bound_bytes")

    @property
    def proved_bytes(self) -> int:
        """Proved minimum size of the arena: the lower bound, or more if the search proved it."""
        return self._largest("proved_bytes")

    @property
    def any_order_bytes(self) -> int | None:
        """Lower bound on the size of the arena over all schedules of these steps.

        None if it is unknown: if a budget changed the steps, or with concat in place or add-to.
        """
        found = [phase.any_order_bytes for phase in self.phases.values()]
        known = [nbytes for nbytes in found if nbytes is not None]
        return self.pinned_bytes + max(known, default=0) if len(known) == len(found) else None

    @property
    def naive_bytes(self) -> int:
        """Size of the arena if every tensor had memory of its own."""
        return self._largest("naive_bytes")

    @property
    def in_place_only_bytes(self) -> int:
        """Size of the arena with views and in-place sharing, but without reuse of freed blocks."""
        return self._largest("in_place_only_bytes")

    @property
    def proved_optimal(self) -> bool:
        """True if no smaller arena exists for the schedules in use."""
        return self.planned_bytes == self.proved_bytes

    def offset(self, name: str) -> int:
        """Return the arena offset of a pinned tensor. Raises KeyError for an unknown name."""
        return self._offsets[name]

    def persistent(self, *kinds: MemoryClass) -> list[str]:
        """Return the names of the pinned tensors of some memory classes.

        States that are carried within an evaluation are left out: none of them outlasts it.
        """
        return [
            block.name
            for block in self.pinned
            if block.memory_class in kinds and not is_evaluation_state(block.name)
        ]

    def place(self, handles: Mapping[str, Handle], reusable: Handle) -> Callable[[int], Handle]:
        """Return the function that gives the handle of an offset where there is no arena.

        handles: of the pinned tensors by name. reusable: of the beginning of the reusable region.
        """
        blocks = [block for block in self.pinned if block.nbytes]
        starts = [block.offset for block in blocks]
        end = self.pinned_bytes

        def handle(offset: int) -> Handle:
            if offset >= end:
                return reusable + (offset - end)
            block = blocks[bisect_right(starts, offset) - 1]
            return handles[block.name] + (offset - block.offset)

        return handle

    @cached_property
    def _offsets(self) -> dict[str, int]:
        """Offsets of the pinned tensors by name."""
        return {block.name: block.offset for block in self.pinned}

    def classes(self) -> dict[str, ClassBytes]:
        """Return the bytes by memory class, of the phase with the largest reusable region."""
        phase = self.largest_phase
        peak = phase.peak_step()
        figures = {}
        for kind in MemoryClass:
            pinned = sum(block.nbytes for block in self.pinned if block.memory_class is kind)
            blocks = [block for block in phase.blocks if block.memory_class is kind]
            live = [block for block in blocks if block.first <= peak < block.last]
            figures[kind.value] = ClassBytes(
                pinned + sum(block.nbytes for block in blocks),
                pinned + sum(block.nbytes for block in live),
            )
        return figures
