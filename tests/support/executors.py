"""Executors of plans on the CPU, for tests that need no other device."""

from __future__ import annotations

from mxrun.base.device import CPU, DeviceDescription
from mxrun.device.interface import Device
from mxrun.device.registry import device_kind
from mxrun.executor.executor import Executor
from mxrun.planner.plan import Plan


def cpu(threads: int = 1) -> DeviceDescription:
    """Return the description of the CPU, on which `threads` may compute."""
    return device_kind(CPU).describe(0, threads)


def open_cpu(threads: int = 1) -> Device:
    """Return the CPU, on which `threads` may compute."""
    return device_kind(CPU)(cpu(threads))


def executor_for(plan: Plan) -> Executor:
    """Return an executor of a plan for the CPU."""
    return Executor(plan, device_kind(CPU)(plan.device))
