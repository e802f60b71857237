"""Arrays in forked processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os
from mxrun import nd

x = nd.ones((300, 300))
y = x
for _ in range(30):
    y = nd.dot(y, x) / 300
child = os.fork()
if not child:
    # Of the parent, small and large, and new ones.
    assert (y.asnumpy() == 1).all() and (x[0] + 1).asnumpy()[0] == 2
    z = nd.dot(x, y) + nd.ones((300, 300))
    assert (z.asnumpy() == 301).all()
    nd.waitall()
    print("child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert (nd.dot(y, x).asnumpy() == 300).all()
"""

# A thread of the parent is in the middle of a call when the process forks.
_PROGRAM_WITH_THREADS = """
import os, sys, threading
from mxrun import nd
from mxrun.imperative.calls.pending import PendingResults

x = nd.ones((300, 300))
is_within, go_on = threading.Event(), threading.Event()

def stop(frame, event, argument):
    if frame.f_code is not PendingResults._add.__code__:
        return stop
    if event == "line" and not is_within.is_set():
        is_within.lines = getattr(is_within, "lines", 0) + 1
        if is_within.lines == 3:
            is_within.set()
            go_on.wait()
    return stop

def work():
    sys.settrace(stop)
    nd.dot(x, x).wait_to_read()

thread = threading.Thread(target=work)
thread.start()
assert is_within.wait(60)
child = os.fork()
if not child:
    assert (nd.dot(x, x).asnumpy() == 300).all()
    print("child", flush=True)
    os._exit(0)
ended = os.waitpid(child, 0)[1]
go_on.set()
thread.join()
assert ended == 0
"""


@pytest.mark.parametrize("program", [_PROGRAM, _PROGRAM_WITH_THREADS])
def test_a_forked_process_goes_on_with_the_arrays_of_its_parent(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "child\n"), done.stderr
