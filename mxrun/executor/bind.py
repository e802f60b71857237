"""Binding of a planned phase to a device's memory: plan → program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mxrun.base.errors import OperatorErrorContext
from mxrun.compiler.external import ExternalPlan
from mxrun.device.interface import Device, Program, ProgramStep
from mxrun.executor.sequence import ProgramSequence
from mxrun.graph.graph import Step
from mxrun.operator.launch import Handle, Launch, Memory, PythonLaunch, Repeat, Views, runs_python
from mxrun.planner.plan import PhasePlan
from mxrun.runtime.numpy_threads import limit_numpy_threads


def bind(phase: PhasePlan, device: Device, memory: Memory, cuts: Sequence[int] = ()) -> Program:
    """Bind every step of a phase to the device's memory.

    cuts: ascending numbers of steps after which the program is cut, so that its pieces can be run
    one by one (`ProgramSequence`); without them it is one piece.

    If any runs a NumPy body, the process's matrix products in NumPy run on as many threads as the
    plan's team from now on.
    """
    steps = placed_steps(phase, device, partial(Handle, memory))
    if not cuts:
        return device.bind(steps)
    bounds = itertools.pairwise((0, *cuts, len(steps)))
    return ProgramSequence([device.bind(steps[begin:end]) for begin, end in bounds])


def program_steps(
    plan: ExternalPlan, device: Device, handles: Sequence[Handle]
) -> list[ProgramStep]:
    """Return the launches of a plan whose memories are at `handles`, temporary space last.

    NumPy's threads are limited as by `bind`.
    """
    return placed_steps(plan.phase, device, plan.place(handles))


def placed_steps(
    phase: PhasePlan,
    device: Device,
    place: Callable[[int], Handle],
    only: Sequence[str] | None = None,
) -> list[ProgramStep]:
    """Return the launches of a phase; `place` gives the handle of an offset in the plan.

    only: names of steps, in whose order these alone are placed. NumPy's threads are limited as by
    `bind`.
    """
    selected: Sequence[Step] = phase.steps
    if only is not None:
        by_name = {step.name: step for step in phase.steps}
        selected = [by_name[name] for name in only]
    steps: list[ProgramStep] = []
    for step in selected:
        assert step.kernel is not None
        with OperatorErrorContext(step.title, step.place):
            launches = step.kernel.bind(phase.handles(step, place))
        watched = tuple(_watched(step, launch) for launch in launches)
        steps.append(ProgramStep(step.name, watched))
    if any(runs_python(launch) for step in steps for launch in step.launches):
        limit_numpy_threads(device.description.threads)
    return steps


def _watched(step: Step, launch: Launch) -> Launch:
    """Wrap Python bodies so that their exceptions name the node."""
    if isinstance(launch, Repeat):
        return replace(launch, program=tuple(_watched(step, each) for each in launch.program))
    if not isinstance(launch, PythonLaunch):
        return launch
    watch = OperatorErrorContext(step.title, step.place)
    body = launch

    def prepare(views: Views) -> Callable[[], None]:
        function = body.prepare(views)

        def run() -> None:
            with watch:
                function()

        return run

    return PythonLaunch(prepare)
