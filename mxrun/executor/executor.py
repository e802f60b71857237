"""Executor: an arena, the bound tapes of a plan's phases, and named views into the arena."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import InternalError
from mxrun.executor.bind import bind
from mxrun.executor.profile import Profile
from mxrun.executor.tape import Tape, TapeEntry
from mxrun.graph.phases import PREPARE
from mxrun.planner.plan import Block, Plan
from mxrun.runtime.storage import Arena

# All bits set: NaN in every floating type, and no valid index in any integer one.
_POISON = 0xFF


class Executor:
    """Runs the phases of one plan; allocates everything at construction and nothing afterwards."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.arena = Arena(plan.planned_bytes)
        self.tapes: dict[str, Tape] = {
            name: bind(phase, self.arena.address, plan.threads)
            for name, phase in plan.phases.items()
        }
        self._prepared = PREPARE not in plan.phases

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return a pinned tensor (input, parameter or state) as an array on the arena's memory."""
        spec = self.plan.specs[name]
        return self.arena.array(self.plan.offset(name), spec.shape, spec.dtype)

    def result(self, phase: str, name: str) -> npt.NDArray[Any]:
        """Return a result of a phase as an array, valid until another phase or step runs."""
        planned = self.plan.phases[phase]
        value = planned.graph.results[name]
        spec = planned.graph.spec(value)
        return self.arena.array(planned.offsets[value], spec.shape, spec.dtype)

    def run(self, phase: str) -> None:
        """Run one phase's tape once; raises InternalError if `prepare` has not run."""
        if not self._prepared:
            raise InternalError("prepare() must run before the other phases of this plan")
        self.tapes[phase].run()

    def prepare(self) -> None:
        """Run the phase that computes what depends on parameters alone, if the plan has one.

        Call it once the parameters have their values.
        """
        if PREPARE in self.tapes:
            self.tapes[PREPARE].run()
        self._prepared = True

    def profile(self, phase: str, recorded_steps: int = 0) -> Profile:
        """Return a profile that times every call of a phase.

        recorded_steps: number of steps that a trace covers.
        """
        return Profile(self.plan.phases[phase], self.tapes[phase], recorded_steps, self.arena)

    def run_poisoned(self, phase: str) -> None:
        """Run one phase with all dead memory poisoned.

        The calls are the same but run one by one. Reusable memory is filled with NaN before the
        first step, and each block again after its last step. Results must not change. If they do,
        the plan freed a block too early or a kernel reads memory that it did not write.
        """
        planned = self.plan.phases[phase]
        memory = self.arena.bytes_view()
        memory[self.plan.pinned_bytes :] = _POISON

        def poison_dead(over: int) -> None:
            for block in planned.blocks:
                if block.last == over < len(planned.steps):
                    memory[block.offset : block.end] = _POISON

        self._run_by_steps(phase, poison_dead)

    def run_overwriting(self, phase: str, block: Block) -> None:
        """Run one phase and poison a single block after its last step.

        The results show whether a later step reads the block.
        """
        memory = self.arena.bytes_view()

        def poison(over: int) -> None:
            if block.last == over:
                memory[block.offset : block.end] = _POISON

        self._run_by_steps(phase, poison)

    def _run_by_steps(self, phase: str, after: Callable[[int], None]) -> None:
        """Run one phase's calls one by one; call `after` with the number of finished steps.

        Steps that make no call (views) finish with the step before them.
        """
        steps, tape = self.plan.phases[phase].steps, self.tapes[phase]
        last_entry = {entry.name: index for index, entry in enumerate(tape.entries)}
        calling = [index for index, step in enumerate(steps) if step.name in last_entry]
        until = dict(zip(calling, [*calling[1:], len(steps)], strict=True))
        position = {steps[index].name: index for index in calling}

        def look(index: int, entry: TapeEntry) -> None:
            if last_entry[entry.name] == index:
                step = position[entry.name]
                for over in range(step + 1, until[step] + 1):
                    after(over)

        tape.run_in_python(look)

    def touched_bytes(self, exercise: Callable[[], None]) -> int:
        """Measure the arena bytes that a run uses: the end of the highest block that changed.

        `exercise` must do everything a run does (initialise, load a batch, run every phase). It
        runs twice, over memory filled with two different bytes, so that a kernel which writes the
        byte already there is still detected. Entire blocks count, because kernels need not fill
        their scratchpads. The arena's content is lost.
        """
        memory = self.arena.bytes_view()
        touched = 0
        for sentinel in (0x3E, 0x3F):
            memory[:] = sentinel
            exercise()
            touched = max(touched, self._highest_changed(memory, sentinel))
        return touched

    def _highest_changed(self, memory: npt.NDArray[np.uint8], sentinel: int) -> int:
        blocks = [*self.plan.pinned]
        for phase in self.plan.phases.values():
            blocks.extend(phase.blocks)
        for block in sorted(blocks, key=lambda block: -block.end):
            if (memory[block.offset : block.end] != sentinel).any():
                return block.end
        return 0
