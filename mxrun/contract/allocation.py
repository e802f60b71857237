"""Checks for allocations outside the plan.

Native code may allocate nothing: all its memory is planned. Allocations are detected by counting
the pages that the process touches for the first time. Before the call the allocator's free pages
are returned to the system, so that any memory allocated and used, even if freed again, causes page
faults.

A Python body may use the temporaries of its NumPy expressions, which are freed when it returns. Two
things are violations there: memory that remains allocated after the call, and temporaries larger
than a few times the call's own tensors, for which temporary space must be requested.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from mxrun.contract.call import BackwardRun, ForwardRun
from mxrun.contract.case import CaseRunner
from mxrun.contract.problem import Violation
from mxrun.device.interface import Device, Program, ProgramStep
from mxrun.operator.kernel import Kernel
from mxrun.operator.launch import Launch, LoopLaunch, runs_python
from mxrun.operator.native_kernel import Addition, add_loop

PAGE = 4096
# Temporaries allowed for a Python body: a multiple of its tensors, plus a constant.
TIMES, FREE_BYTES = 16, 1 << 16
# Number of calls whose growth is measured, and the growth allowed for each, in bytes: the
# interpreter caches small objects, but nothing as large as an array. What it caches may exceed that
# for a few calls, which are therefore measured first, but do not condemn.
FEW_CALLS, CALLS, RETAINED_BYTES = 4, 16, 256
_ATTEMPTS = 5


def missing() -> str:
    """Return why native allocations cannot be detected on this machine; empty if they can."""
    return "" if _meter_works() else "the checker cannot count page faults on this system"


def allocations(runner: CaseRunner) -> Iterator[Violation]:
    """Check that native calls allocate nothing and Python bodies neither leak nor hide memory."""
    for implementation in runner.implementations:
        yield from _of_run(runner.accepted(implementation))
        if runner.case.differentiated:
            yield from _of_run(runner.backward(implementation))


def _of_run(run: ForwardRun | BackwardRun) -> Iterator[Violation]:
    whose, device = run.trial.whose, run.trial.device
    native = [each for each in run.launches if not runs_python(each)]
    python = [each for each in run.launches if runs_python(each)]
    if native and _meter_works():
        pages = _pages(_program(whose, device, native).run) - _baseline_pages(device)
        if pages > 0:
            yield Violation(
                f"{whose} allocates memory inside the call",
                "nothing",
                f"{pages * PAGE:,} bytes or more",
                hint="plan it: scratch_bytes of a LoopPart, workspace_bytes of a Kernel",
            )
    if python:
        yield from _of_python(whose, run.kernel, _program(whose, device, python).run)


def _program(whose: str, device: Device, launches: Sequence[Launch]) -> Program:
    return device.bind([ProgramStep(whose, tuple(launches))])


def _of_python(whose: str, kernel: Kernel, function: Callable[[], None]) -> Iterator[Violation]:
    specs = (*kernel.inputs, *kernel.outputs)
    allowed = TIMES * (sum(spec.nbytes for spec in specs if spec) + kernel.workspace_bytes)
    retained, peak = _retained_and_peak(function)
    if retained > CALLS * RETAINED_BYTES:
        yield Violation(
            f"{whose} leaks memory",
            "nothing",
            f"{retained:,} bytes after {CALLS} calls",
            hint="keep nothing between calls: lasting data is an auxiliary state",
        )
    elif peak > allowed + FREE_BYTES:
        yield Violation(
            f"{whose} hides large temporaries",
            f"at most {TIMES} times its tensors, {allowed + FREE_BYTES:,} bytes",
            f"{peak:,} bytes",
            hint="request temporary space in forward_resource or backward_resource, so that it is "
            "planned",
        )


def _retained_and_peak(function: Callable[[], None]) -> tuple[int, int]:
    """Return the bytes that `CALLS` calls leave allocated, and their peak use.

    The least of a few attempts counts, because the interpreter itself sometimes retains objects.
    """
    retained, peak = 1 << 62, 0
    with _traced():
        function()
        for calls in (FEW_CALLS, *[CALLS] * _ATTEMPTS):
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            for _ in range(calls):
                function()
            highest = tracemalloc.get_traced_memory()[1]
            gc.collect()
            growth = (tracemalloc.get_traced_memory()[0] - before) * CALLS // calls
            retained, peak = min(retained, growth), highest - before
            if retained <= CALLS * RETAINED_BYTES:
                break
    return retained, peak


@contextmanager
def _traced() -> Iterator[None]:
    """Context manager that traces allocations and restricts garbage collection to new objects."""
    gc.freeze()
    already = tracemalloc.is_tracing()
    if not already:
        tracemalloc.start()
    try:
        yield
    finally:
        if not already:
            tracemalloc.stop()
        gc.unfreeze()


def _pages(function: Callable[[], None]) -> int:
    """Return the pages a call touches for the first time: the least of a few attempts.

    Other threads fault as well, which the minimum filters out.
    """
    least, is_collecting = 1 << 30, gc.isenabled()
    gc.disable()
    try:
        for _ in range(_ATTEMPTS):
            _give_back_free_pages()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            function()
            least = min(least, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
            if least == 0:
                break
    finally:
        if is_collecting:
            gc.enable()
    return least


@cache
def _baseline_pages(device: Device) -> int:
    """Return the page faults of a program whose only call does nothing."""
    nothing = LoopLaunch(add_loop, Addition(count=0, source=None, target=None), 1)
    return _pages(_program("nothing", device, [nothing]).run)


@cache
def _meter_works() -> bool:
    """Return whether a test allocation is detected."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p

    def allocate() -> None:
        block = ctypes.c_void_p(library.malloc(ctypes.c_size_t(16 * PAGE)))
        ctypes.memset(block, 1, 16 * PAGE)
        library.free(block)

    return hasattr(library, "malloc_trim") and _pages(allocate) >= 8


def _give_back_free_pages() -> None:
    ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
