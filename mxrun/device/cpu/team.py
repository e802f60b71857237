"""Compute team: the threads of one OpenMP runtime, shared by oneDNN and compiled loops.

oneDNN's GNU build and mxrun's compiled loops both run on libgomp, so that there is a single thread
pool and no two pools compete for the cores.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

# Number of polls of a waiting thread before it sleeps. libgomp's default of 300,000 takes over ten
# milliseconds, which on a busy machine keeps the awaited thread itself from the core. Mean step on
# two cores beside two busy processes with 300,000 / 10,000 / 3,000: lenet 57 / 22 / 16 ms; beside
# one busy thread: lenet 278 / 44 / 34, mlp 115 / 2.2 / 5.4. On an idle machine it makes no
# difference as long as it spans the gaps of a step, which 3,000 hardly does.
_SPIN_COUNT = "10000"

_LIBRARY = "libgomp.so.1"


@dataclass(frozen=True)
class OpenMP:
    """Addresses of libgomp's entry points, for native code."""

    parallel: int
    thread_number: int
    team_size: int
    set_threads: int


@cache
def _library() -> ctypes.CDLL:
    """Return libgomp, opened once, because ctypes creates function classes per instance."""
    return ctypes.CDLL(_LIBRARY)


@cache
def openmp() -> OpenMP | None:
    """Return the process's libgomp, or None if there is none (everything then runs on one thread).

    Call it before anything else loads libgomp, which reads its settings only once.
    """
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT
    try:
        library = _library()
    except OSError:
        return None
    # OMP_DYNAMIC would let the runtime use smaller teams than the kernels were prepared for.
    library.omp_set_dynamic(ctypes.c_int(0))
    return OpenMP(
        parallel=_address(library.GOMP_parallel),
        thread_number=_address(library.omp_get_thread_num),
        team_size=_address(library.omp_get_num_threads),
        set_threads=_address(library.omp_set_num_threads),
    )


def set_threads(threads: int) -> None:
    """Set the team size for parallel regions that the calling thread opens from now on.

    oneDNN compiles it into some primitives, so it must be the same when a primitive is created and
    when it is executed.
    """
    if openmp() is not None:
        _library().omp_set_num_threads(ctypes.c_int(threads))


@contextmanager
def team(threads: int) -> Iterator[None]:
    """Context manager that sets the calling thread's team size."""
    if openmp() is None:
        yield
        return
    before = _library().omp_get_max_threads()
    set_threads(threads)
    try:
        yield
    finally:
        set_threads(before)


def available_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def largest_team() -> int:
    """Return the runtime's maximum team size (OMP_THREAD_LIMIT); 1 without a runtime."""
    if openmp() is None:
        return 1
    return int(_library().omp_get_thread_limit())


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
