"""Compute team: a single libgomp, its size, and the spin time of its threads."""

from __future__ import annotations

import ctypes
import os

import pytest
from commands import python_output

from mxrun.device.cpu.team import available_cores, openmp, set_threads, team

needs_libgomp = pytest.mark.skipif(openmp() is None, reason="libgomp.so.1 is not installed")


def members() -> set[int]:
    """Numbers of the threads that a parallel region of the default size runs on."""
    runtime = openmp()
    assert runtime is not None
    number = ctypes.CFUNCTYPE(ctypes.c_int)(runtime.thread_number)
    body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    parallel = ctypes.CFUNCTYPE(None, body, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    seen = []
    parallel(runtime.parallel)(body(lambda data: seen.append(number())), None, 0, 0)
    return set(seen)


@needs_libgomp
def test_team_size_is_restored() -> None:
    set_threads(2)
    with team(1):
        assert members() == {0}
    assert members() == {0, 1}


@needs_libgomp
@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_waiting_is_short_unless_the_user_says_otherwise(
    given: dict[str, str], expected: str
) -> None:
    script = (
        "import os; from mxrun.device.cpu.team import openmp; openmp(); "
        "print(os.environ.get('GOMP_SPINCOUNT'))"
    )
    clean = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    assert python_output("-c", script, env=clean | given).strip() == expected


def test_available_cores_follow_the_affinity() -> None:
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from mxrun.device.cpu.team import available_cores; print(available_cores())"
    )
    assert python_output("-c", script).strip() == "1"
    assert available_cores() >= 1


@needs_libgomp
@pytest.mark.parametrize("setting", [{"OMP_DYNAMIC": "true"}, {"OMP_THREAD_LIMIT": "1"}, {}])
def test_loops_are_whole_whatever_team_the_runtime_gives(setting: dict[str, str]) -> None:
    script = (
        "import numpy as np; from mxrun.device.cpu.team_loop import TeamLoop; "
        "from mxrun.device.cpu.call import TaskThreads; "
        "from mxrun.operator.native_kernel import Addition, add_loop; "
        "a = np.ones(100003, np.float32); b = np.ones_like(a); "
        "given = Addition(count=a.size, source=a, target=b); "
        "loop = TeamLoop(add_loop, given, tasks=4, threads=TaskThreads(2)); "
        "loop(); loop(); print((b == 3).all())"
    )
    assert python_output("-c", script, env={**os.environ, **setting}).strip() == "True"


@needs_libgomp
def test_the_largest_team_follows_the_runtimes_limit() -> None:
    script = "from mxrun.device.cpu.team import largest_team; print(largest_team())"
    limited = {**os.environ, "OMP_THREAD_LIMIT": "3"}
    assert python_output("-c", script, env=limited).strip() == "3"
