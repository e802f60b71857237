"""Binding of a planned phase to a device's memory: plan → program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mxrun.base.errors import OperatorErrorContext
from mxrun.device.interface import Device, Program, ProgramStep
from mxrun.graph.graph import Step
from mxrun.operator.launch import Handle, Launch, Memory, PythonLaunch, Repeat, Views, runs_python
from mxrun.planner.plan import PhasePlan, Plan
from mxrun.runtime.numpy_threads import use_one_numpy_thread


def bind(phase: PhasePlan, device: Device, memory: Memory) -> Program:
    """Bind every step of a phase to an arena.

    If any runs a NumPy body, the process's matrix products in NumPy run on one thread from now on.
    """
    return device.bind(placed_steps(phase, phase.steps, device, partial(Handle, memory)))


def program_steps(plan: Plan, device: Device, handles: Sequence[Handle]) -> list[ProgramStep]:
    """Return the launches of a plan of one phase whose pinned blocks are at `handles`.

    Behind them is the handle of the reusable region, if there is one. NumPy's threads are limited
    as by `bind`.
    """
    (phase,) = plan.phases.values()
    names = [block.name for block in plan.pinned]
    # Without a reusable region only a block of no bytes at the end is there.
    place = plan.place(dict(zip(names, handles, strict=False)), handles[-1])
    return placed_steps(phase, phase.steps, device, place)


def placed_steps(
    phase: PhasePlan, selected: Sequence[Step], device: Device, place: Callable[[int], Handle]
) -> list[ProgramStep]:
    """Return the launches of steps of a phase; `place` gives the handle of an offset in the plan.

    Where bodies run in NumPy, its products use one thread from then on.
    """
    steps: list[ProgramStep] = []
    for step in selected:
        assert step.kernel is not None
        with OperatorErrorContext(step.title, step.place):
            launches = step.kernel.bind(phase.handles(step, place))
        watched = tuple(_watched(step, launch) for launch in launches)
        steps.append(ProgramStep(step.name, watched))
    if any(runs_python(launch) for step in steps for launch in step.launches):
        use_one_numpy_thread()
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

    return replace(launch, prepare=prepare)
