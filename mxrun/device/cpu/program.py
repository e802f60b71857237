"""Programs of the CPU: tapes, with their times and overheads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxrun.base.machine import Machine
from mxrun.device.cpu.tape import Tape, TapeEntry
from mxrun.device.cpu.tape_cost import overheads, tape_cost
from mxrun.device.cpu.timed_tape import TimedTape
from mxrun.device.interface import Program, ProgramCost, ProgramStep, TimedProgram


class CpuProgram(Tape, Program):
    """Tape as a program; it holds references to the memory of its steps."""

    def __init__(self, entries: Sequence[TapeEntry], steps: Sequence[ProgramStep] = ()) -> None:
        super().__init__(entries)
        self._steps = tuple(steps)

    def timed(self) -> TimedProgram:
        """Return the same calls with a clock reading after each."""
        return TimedTape(self, self)

    def cost(self) -> ProgramCost:
        """Measure the overhead of a run with empty functions."""
        return tape_cost(self)

    def overheads(self, peaks: Machine) -> Mapping[str, float]:
        """Return the seconds of each step's empty calls."""
        return overheads(self, peaks)
