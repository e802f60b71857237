"""Executor: memory of a device, the bound programs of a plan's phases, and named tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from mxrun.base import flags
from mxrun.base.errors import InternalError
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.device.interface import Device, DeviceTensor, Program
from mxrun.executor.bind import placed_steps
from mxrun.executor.profile import Profile
from mxrun.executor.sequence import ProgramSequence
from mxrun.graph.carried import state_of
from mxrun.graph.graph import MemoryClass, Step
from mxrun.graph.phases import PREPARE, base_phase
from mxrun.operator.launch import Handle, Memory
from mxrun.planner.plan import Block, Plan

Place: TypeAlias = Callable[[int], Handle]
# All bits set: NaN in every floating type, and no valid index in any integer one.
_POISON = 0xFF


class Executor:
    """Runs the phases of one plan; allocates everything at construction and nothing afterwards.

    memory: the arena, if the tensors are not placed elsewhere.
    """

    memory: Memory

    def __init__(
        self,
        plan: Plan,
        device: Device,
        pieces: Mapping[str, Sequence[Sequence[Step]]] | None = None,
        place: Place | None = None,
    ) -> None:
        """Bind every program to an arena, or each when it first runs where `place` says.

        pieces: by phase, the steps of each piece of its program (`ProgramSequence`); in one piece
        by default. place: the handle of an offset in the plan, for tensors in memory that others
        own (`Plan.place`).
        """
        self.plan, self.device = plan, device
        if device.description != plan.device:
            raise InternalError(f"a plan for {plan.device} cannot run on {device.description}")
        self._pieces = pieces or {}
        self.programs: dict[str, Program] = {}
        if place is None:
            self.memory = device.allocate(plan.planned_bytes)
            self._place: Place = partial(Handle, self.memory)
            for name in plan.phases:
                self.program(name)
        else:
            self._place = place
        self._preparing = [name for name in plan.phases if base_phase(name) == PREPARE]
        self._prepared = not self._preparing

    def program(self, phase: str) -> Program:
        """Return the program of a phase, bound if it has not run."""
        found = self.programs.get(phase)
        if found is None:
            planned = self.plan.phases[phase]
            bound = [
                self.device.bind(placed_steps(planned, steps, self.device, self._place))
                for steps in self._pieces.get(phase, (planned.steps,))
            ]
            found = bound[0] if len(bound) == 1 else ProgramSequence(bound)
            self.programs[phase] = found
        return found

    def tensor(self, name: str) -> DeviceTensor:
        """Return a pinned tensor: an input, a parameter or a state."""
        return self.tensor_at(self.plan.offset(name), self.plan.specs[name])

    def result(self, phase: str, name: str) -> DeviceTensor:
        """Return a result of a phase, valid until another phase or step runs.

        Its bytes are those of the plain layout, even if its layout has another name.
        """
        planned = self.plan.phases[phase]
        value = planned.graph.results[name]
        spec = planned.graph.spec(value).with_layout(PLAIN)
        return self.tensor_at(planned.offsets[value], spec)

    def tensor_at(self, offset: int, spec: TensorSpec) -> DeviceTensor:
        """Return the tensor of `spec` at a byte offset."""
        return self.device.tensor(self._place(offset), spec)

    def carried(self, phase: str) -> dict[str, DeviceTensor]:
        """Return the states that a phase carries from run to run, by their names in the network.

        Evaluation has states of its own.
        """
        graph = self.plan.phases[phase].graph
        return {
            state_of(name): self.tensor(name)
            for name, value in graph.sources.items()
            if graph.values[value].memory_class is MemoryClass.CARRIED
        }

    def clear_carried(self, phase: str, names: Collection[str] | None = None) -> None:
        """Set the states that a phase carries from run to run to zero; `names`: only these."""
        for name, tensor in self.carried(phase).items():
            if names is None or name in names:
                tensor.write(0)

    def run(self, phase: str) -> None:
        """Run one phase once; raises InternalError if `prepare` has not run.

        In debug mode dead memory of a device of its own is poisoned: tools for the host's memory do
        not see it.
        """
        if not self._prepared:
            raise InternalError("prepare() must run before the other phases of this plan")
        if flags.debug() and not self.device.has_host_memory:
            self.run_poisoned(phase)
        else:
            self.programs[phase].run()

    def prepare(self) -> None:
        """Run the phases that compute what depends on parameters alone, if the plan has any.

        Call it once the parameters have their values.
        """
        for name in self._preparing:
            self.programs[name].run()
        self._prepared = True

    def profile(self, phase: str, recorded_steps: int = 0) -> Profile:
        """Return a profile that times every call of a phase.

        recorded_steps: number of steps that a trace covers.
        """
        return Profile(self.plan.phases[phase], self.programs[phase], recorded_steps)

    def run_poisoned(self, phase: str) -> None:
        """Run one phase with all dead memory poisoned.

        The calls are the same but run one by one. Reusable memory is filled with NaN before the
        first step, and each block again after its last step. Results must not change. If they do,
        the plan freed a block too early or a kernel reads memory that it did not write.
        """
        planned = self.plan.phases[phase]
        self._poison(self.plan.pinned_bytes, self.plan.planned_bytes)

        def poison_dead(over: int) -> None:
            for block in planned.blocks:
                if block.last == over < len(planned.steps):
                    self._poison(block.offset, block.end)

        run_by_steps(self.programs[phase], planned.steps, poison_dead)

    def run_overwriting(self, phase: str, block: Block) -> None:
        """Run one phase and poison a single block after its last step.

        The results show whether a later step reads the block.
        """

        def poison(over: int) -> None:
            if block.last == over:
                self._poison(block.offset, block.end)

        run_by_steps(self.programs[phase], self.plan.phases[phase].steps, poison)

    def _poison(self, begin: int, end: int) -> None:
        self.device.fill(self.memory, begin, end, _POISON)

    def touched_bytes(self, exercise: Callable[[], None]) -> int:
        """Measure the arena bytes that a run uses: the end of the highest block that changed.

        `exercise` must do everything a run does (initialise, load a batch, run every phase). It
        runs twice, over memory filled with two different bytes, so that a kernel which writes the
        byte already there is still detected. Entire blocks count, because kernels need not fill
        their scratchpads. The arena's content is lost.
        """
        touched = 0
        for sentinel in (0x3E, 0x3F):
            self.device.fill(self.memory, 0, self.plan.planned_bytes, sentinel)
            exercise()
            touched = max(touched, self._highest_changed(sentinel))
        return touched

    def _highest_changed(self, sentinel: int) -> int:
        blocks = [*self.plan.pinned]
        for phase in self.plan.phases.values():
            blocks.extend(phase.blocks)
        for block in sorted(blocks, key=lambda block: -block.end):
            content = self.tensor_at(block.offset, TensorSpec((block.nbytes,), "uint8")).values()
            if (content != sentinel).any():
                return block.end
        return 0


def run_by_steps(program: Program, steps: Sequence[Step], after: Callable[[int], None]) -> None:
    """Run the calls of steps one by one; call `after` with each number of finished steps.

    Steps that make no call (views) finish with the step before them.
    """
    last_call = {name: index for index, name in enumerate(program.names)}
    calling = [index for index, step in enumerate(steps) if step.name in last_call]
    ends = dict(zip(calling, [*calling[1:], len(steps)], strict=True))
    finished = {last_call[steps[index].name]: range(index, end) for index, end in ends.items()}

    def follow(call: int) -> None:
        for index in finished.get(call, ()):
            after(index + 1)

    for index in range(calling[0] if calling else len(steps)):
        after(index + 1)
    program.run_watched(follow)
