"""The compute team: the threads of one OpenMP runtime, shared by oneDNN and our own loops.

oneDNN's GNU build and mxrun's compiled loops both run on libgomp, so that there is one pool of
threads and never two fighting for the cores.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

# How often a waiting thread looks before it sleeps. libgomp's 300,000 take over ten milliseconds,
# which on a machine with other work keep from the core the very thread that is waited for. Measured
# on two cores beside two busy processes, mean step: lenet 85 ms with 300,000, 37 with 30,000 and 17
# with 3,000; mlp 5.9, 1.2 and 1.2, but its median 0.19, 0.18 and 1.6. Alone it makes no difference.
_SPIN_COUNT = "30000"

_LIBRARY = "libgomp.so.1"


@dataclass(frozen=True)
class OpenMP:
    """Addresses of libgomp's entry points, for native code that needs no header."""

    parallel: int
    thread_number: int


@cache
def openmp() -> OpenMP | None:
    """The process's libgomp, or None where there is none (everything then runs on one thread).

    Must be called before anything else loads libgomp, which reads its settings once.
    """
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    return OpenMP(_address(library.GOMP_parallel), _address(library.omp_get_thread_num))


def set_threads(threads: int) -> None:
    """Size of the team for parallel regions that the calling thread opens from now on.

    oneDNN bakes it into some primitives, so it must be the same while a primitive is created and
    whenever it is executed.
    """
    if openmp() is not None:
        ctypes.CDLL(_LIBRARY).omp_set_num_threads(ctypes.c_int(threads))


@contextmanager
def team(threads: int) -> Iterator[None]:
    """The calling thread's team size within a block."""
    if openmp() is None:
        yield
        return
    before = ctypes.CDLL(_LIBRARY).omp_get_max_threads()
    set_threads(threads)
    try:
        yield
    finally:
        set_threads(before)


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
