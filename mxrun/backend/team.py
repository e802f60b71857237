"""The compute team: the threads of one OpenMP runtime, shared by oneDNN and our own loops.

oneDNN's GNU build and mxrun's compiled loops both run on libgomp, so that there is one pool of
threads and never two fighting for the cores.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class OpenMP:
    """Addresses of libgomp's entry points, for native code that needs no header."""

    parallel: int
    thread_number: int


@cache
def openmp() -> OpenMP | None:
    """The process's libgomp, or None where there is none (everything then runs on one thread)."""
    try:
        library = ctypes.CDLL("libgomp.so.1")
    except OSError:
        return None
    return OpenMP(_address(library.GOMP_parallel), _address(library.omp_get_thread_num))


def set_threads(threads: int) -> None:
    """Size of the team for parallel regions that the calling thread opens from now on."""
    if openmp() is not None:
        ctypes.CDLL("libgomp.so.1").omp_set_num_threads(ctypes.c_int(threads))


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
