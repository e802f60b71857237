"""Programs whose memory is limited by the cap of a storage pool."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import mxrun
from mxrun import nd
from mxrun.base.context import Context
from mxrun.device.storage import storage_pools
from mxrun.runtime.engine.default import engine, using_engine
from mxrun.runtime.engine.interface import RunContext
from mxrun.runtime.engine.naive import NaiveEngine

MEBIBYTE = 1 << 20
# More elements than any machine has bytes.
HUGE = 10**15


@pytest.fixture
def context() -> Iterator[Context]:
    """Context with a pool of at most 6 MiB."""
    found = mxrun.cpu(51)
    pool = storage_pools().of(found)
    pool.cap = 6 * MEBIBYTE
    yield found
    pool.cap = None


def test_calls_wait_for_memory_that_pending_functions_hold(context: Context) -> None:
    x = nd.zeros((MEBIBYTE // 4,), ctx=context)
    may_run = threading.Event()

    def hold(_: RunContext) -> None:
        assert may_run.wait(60)

    engine().push_sync(hold, updates=[x.chunk], name="hold", context=context)
    # The sums cannot run before the memory of one of them is refused.
    timer = threading.Timer(0.3, may_run.set)
    timer.start()
    for _ in range(40):
        y = x + 1
    assert (y.asnumpy() == 1).all()
    timer.join()


def test_waiting_for_memory_raises_no_failure_of_others(context: Context) -> None:
    x = nd.zeros((MEBIBYTE // 4,), ctx=context)
    may_run = threading.Event()

    def fail(_: RunContext) -> None:
        assert may_run.wait(60)
        raise ValueError("broken")

    engine().push_sync(fail, updates=[x.chunk], name="hold", context=context)
    timer = threading.Timer(0.3, may_run.set)
    timer.start()
    for _ in range(40):
        y = x + 1
    timer.join()
    for failed in (x, y):
        with pytest.raises(mxrun.MxrunError, match="hold failed: broken"):
            failed.asnumpy()


def test_what_is_too_large_is_refused_after_the_wait(context: Context) -> None:
    for owner in (engine(), NaiveEngine()):
        with using_engine(owner):
            x = nd.zeros((MEBIBYTE // 4,), ctx=context) + 1
            with pytest.raises(mxrun.UserError, match="out of memory on cpu:51"):
                nd.zeros((2 * MEBIBYTE,), ctx=context)
            with pytest.raises(mxrun.UserError, match="out of memory on cpu:51"):
                nd.concat(*[x] * 8, dim=0)
            assert (x.asnumpy() == 1).all()


def test_a_function_of_the_engine_does_not_wait_for_memory(context: Context) -> None:
    x, found = nd.zeros((1,), ctx=context), list[str]()

    def allocate(_: RunContext) -> None:
        with pytest.raises(mxrun.UserError) as raised:
            nd.zeros((2 * MEBIBYTE,), ctx=context)
        found.append(str(raised.value))

    engine().push_sync(allocate, updates=[x.chunk], context=context)
    x.wait_to_read()
    assert "out of memory" in found[0]


TOO_LARGE: dict[str, Callable[[], object]] = {
    "zeros": lambda: nd.zeros(HUGE),
    "ones": lambda: nd.ones(HUGE),
    "full": lambda: nd.full(HUGE, 2, dtype="int32"),
    "arange": lambda: nd.arange(HUGE),
    "linspace": lambda: nd.linspace(0, 1, HUGE),
    "eye": lambda: nd.eye(3 * 10**7),
    "array": lambda: nd.array(np.broadcast_to(np.float32(1), (HUGE,))),
    "tile": lambda: nd.tile(nd.ones((2, 3)), (HUGE,)),
    "repeat": lambda: nd.repeat(nd.ones((2, 3)), HUGE),
    "one_hot": lambda: nd.one_hot(nd.array([1]), HUGE),
    "broadcast_to": lambda: nd.broadcast_to(nd.ones((1,)), (HUGE,)),
    "uniform": lambda: nd.random.uniform(shape=(HUGE,)),
    "beyond 64 bits": lambda: nd.ones((2**40, 2**40)),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_arrays_beyond_memory_are_refused_alike(name: str) -> None:
    with pytest.raises(mxrun.UserError, match=r"^out of memory on cpu:0: [\d,]+ bytes"):
        TOO_LARGE[name]()


@pytest.mark.full
def test_memory_for_computing_values_is_refused_alike() -> None:
    """The array itself has memory, its values in float64 have none."""
    program = """
import resource
import mxrun
from mxrun import nd

nd.ones((2,)).asnumpy()
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28 + 2**27, resource.RLIM_INFINITY))
try:
    nd.linspace(0, 1, 2**26)
except mxrun.UserError as error:
    print(str(error).splitlines()[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    found = done.stdout.splitlines()
    assert found == ["out of memory: the values of 268,435,456 bytes need more to be computed"]
