"""Profiling of a phase: its program with a clock reading after every call.

The calls, their order and hence the results are those of the plain program. Everything is allocated
before the first run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from mxrun.device.interface import Nanoseconds, Program
from mxrun.graph.graph import Step
from mxrun.planner.plan import PhasePlan
from mxrun.runtime.profiler import CandidateTime, Event, OperatorTime


class Profile:
    """Times of a phase's calls: sums over all runs, and every single time of the first steps.

    recorded_steps: number of first steps whose single times are saved for a trace; the sums cover
    every run.
    """

    def __init__(self, phase: PhasePlan, program: Program, recorded_steps: int = 0) -> None:
        self.steps = 0
        self._phase = phase
        self._names = program.names
        self._timed = program.timed()
        count = len(self._names)
        self._elapsed: Nanoseconds = np.zeros(count, np.int64)
        self._totals: Nanoseconds = np.zeros(count, np.int64)
        self._recorded: Nanoseconds = np.zeros((recorded_steps, 2, count), np.int64)

    def run(self) -> None:
        """Run the phase once; raises InternalError naming the step whose call failed."""
        timed = self._timed
        timed.run()
        np.subtract(timed.end, timed.begin, out=self._elapsed)
        np.add(self._totals, self._elapsed, out=self._totals)
        if self.steps < len(self._recorded):
            self._recorded[self.steps, 0] = timed.begin
            self._recorded[self.steps, 1] = timed.end
        self.steps += 1

    def operators(self) -> tuple[OperatorTime, ...]:
        """Return one record per step that makes a call, in execution order."""
        steps = {step.name: step for step in self._phase.steps}
        totals: dict[str, int] = {}
        for name, nanoseconds in zip(self._names, self._totals.tolist(), strict=True):
            totals[name] = totals.get(name, 0) + nanoseconds
        total = sum(totals.values())
        return tuple(
            _operator_time(steps[name], self.steps, nanoseconds, total)
            for name, nanoseconds in totals.items()
        )

    def events(self) -> Iterator[Event]:
        """Yield one event per call of the recorded steps.

        `flops` and `bytes` are those of the operator; `call` distinguishes its calls.
        """
        steps = {step.name: step for step in self._phase.steps}
        calls = [
            (steps[name], f"{number + 1} of {len(group)}")
            for name, group in (
                (name, list(calls_of_step)) for name, calls_of_step in groupby(self._names)
            )
            for number in range(len(group))
        ]
        for number, (begin, end) in enumerate(self._recorded[: self.steps].tolist()):
            for (step, call), start, stop in zip(calls, begin, end, strict=True):
                yield _event(step, call, number, start, stop)


def _operator_time(step: Step, calls: int, nanoseconds: int, total: int) -> OperatorTime:
    assert step.prop is not None
    assert step.kernel is not None
    each = nanoseconds / max(1, calls)
    return OperatorTime(
        name=step.name,
        op=step.prop.type_string,
        phase=step.kind.value,
        implementation=step.kernel.implementation,
        calls=calls,
        ms=each / 1e6,
        share=nanoseconds / max(1, total),
        # Operations or bytes per nanosecond equal 10^9 of them per second.
        gflops=step.kernel.flops / max(1.0, each),
        gbytes_per_s=step.kernel.bytes_moved / max(1.0, each),
        candidates=tuple(
            CandidateTime(candidate.implementation, candidate.seconds * 1e3)
            for candidate in step.kernel.candidates
        ),
    )


def _event(step: Step, call: str, number: int, start: int, stop: int) -> Event:
    assert step.prop is not None
    assert step.kernel is not None
    arguments: dict[str, str | int | float] = {
        "op": step.prop.type_string,
        "implementation": step.kernel.implementation,
        "flops": step.kernel.flops,
        "bytes": step.kernel.bytes_moved,
        "call": call,
        "step": number,
    }
    return Event(step.name, step.kind.value, "operators", start, stop - start, arguments)
