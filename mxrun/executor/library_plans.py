"""Plans that a library made for the kernels of a run, which another process may make otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mxrun.device.interface import Device
from mxrun.executor.bind import placed_steps
from mxrun.operator.launch import Handle, Launch, ProviderLaunch, Repeat
from mxrun.planner.plan import Plan


def library_plans(plan: Plan, device: Device) -> dict[str, str]:
    """Return the records of all launches of a library, by their keys; nothing is run.

    Empty on a device without such records.
    """
    if not plan.device.card:
        return {}
    place = partial(Handle, device.unbacked(plan.planned_bytes))
    found: dict[str, str] = {}
    for phase in plan.phases.values():
        for step in placed_steps(phase, phase.steps, device, place):
            for launch in _provided(step.launches):
                found |= launch.record()
    return found


def _provided(launches: tuple[Launch, ...]) -> Iterator[ProviderLaunch]:
    for launch in launches:
        if isinstance(launch, Repeat):
            yield from _provided(launch.program)
        elif isinstance(launch, ProviderLaunch):
            yield launch
