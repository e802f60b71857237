"""Kernels and parts of kernels on NumPy arrays, run by the CPU device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from executors import open_cpu

from mxrun.device.host_memory import HostMemory
from mxrun.device.interface import ProgramStep
from mxrun.operator.kernel import Handles, Kernel
from mxrun.operator.launch import Handle
from mxrun.operator.native_kernel import KernelPart

Array = npt.NDArray[Any]


def run(
    prepared: Kernel | KernelPart,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array | None],
    workspace: Array | None = None,
    threads: int = 1,
) -> None:
    """Run a kernel, or a part whose scratch space is the workspace, once."""
    bound(prepared, handles_of(inputs, outputs, workspace=workspace), threads)()


def bound(prepared: Kernel | KernelPart, handles: Handles, threads: int = 1) -> Callable[[], None]:
    """Return the run of a kernel or a part as a program; it keeps the arrays alive."""
    if isinstance(prepared, Kernel):
        launches = prepared.bind(handles)
    else:
        launches = prepared.launches(handles, handles.workspace)
    program = open_cpu(threads).bind([ProgramStep("kernel", launches)])

    def run_once(_: Handles = handles) -> None:
        program.run()

    return run_once


def handles_of(
    inputs: Sequence[Array | None],
    outputs: Sequence[Array | None],
    extra_outputs: Sequence[Array] = (),
    workspace: Array | None = None,
) -> Handles:
    """Return the handles of arrays; None for an absent tensor."""
    groups = (tuple(map(_handle, group)) for group in (inputs, outputs, extra_outputs))
    return Handles(*groups, _handle(workspace))


def aligned(nbytes: int) -> Array:
    """Return memory that begins at a multiple of 64 bytes, as an arena's blocks do."""
    room = np.zeros(nbytes + 64, np.uint8)
    first = -room.ctypes.data % 64
    return room[first : first + nbytes]


def _handle(array: Array | None) -> Handle | None:
    return None if array is None else Handle(HostMemory.of(array), 0)
