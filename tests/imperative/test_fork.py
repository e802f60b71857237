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

# Threads that never stop calling operators starve no wait, and no fork either.
_PROGRAM_BESIDE_BUSY_THREADS = """
import os, threading
from mxrun import nd

def work():
    x, y = nd.ones((50, 50)), nd.ones((50, 50))
    while True:
        x = nd.dot(x, y) * 0.02

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
x = nd.ones((300, 300))
for _ in range(3):
    y = nd.dot(x, x)
    nd.waitall()
    assert nd.dot(y, x).asnumpy()[0, 0] == 90_000
child = os.fork()
if not child:
    assert (y.asnumpy() == 300).all() and (nd.random.normal(0, 1, (9,)).asnumpy() < 9).all()
    nd.waitall()
    print("child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""

# Other threads make the first arrays of the process: they import, load libraries and hold locks.
_PROGRAM_BEFORE_THE_FIRST_ARRAY = """
import faulthandler, os, threading, time
import mxrun
from mxrun import nd

def work():
    x = nd.ones((50, 50))
    while True:
        x = nd.dot(x, nd.ones((50, 50))) * 0.02
        nd.softmax(nd.random.normal(0, 1, (3, 3)))

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(DELAY)
child = os.fork()
if not child:
    x = nd.ones((50, 50))
    assert (nd.softmax(nd.dot(x, x)).asnumpy() - 1 / 50 < 1e-6).all()
    print("child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""

# A module that uses arrays when it is imported: a fork waits until a thread has imported it.
_PROGRAM_BESIDE_AN_IMPORT = """
import os, pathlib, sys, tempfile, threading
from mxrun import nd

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "slow_module.py").write_text('''
import sys, time
from mxrun import nd
sys.begun.set()
time.sleep(0.2)
x = nd.dot(nd.ones((9, 9)), nd.ones((9, 9))) + 1
''')
sys.path.insert(0, str(folder))
sys.begun, imported = threading.Event(), threading.Event()

def work():
    import slow_module
    imported.set()

nd.ones((2,)).wait_to_read()
threading.Thread(target=work, daemon=True).start()
sys.begun.wait()
child = os.fork()
if not child:
    import slow_module
    assert (slow_module.x.asnumpy() == 10).all()
    print("child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert imported.wait(60)
os._exit(0)
"""

# A function that begins while the fork waits for an earlier one still runs in the parent.
_PROGRAM_OF_ANOTHER_THREAD = """
import os, threading, time
from mxrun import MxrunError
from mxrun.runtime.engine.default import engine
from mxrun.runtime.engine.interface import Pool

engine, begun, ended = engine(), threading.Event(), threading.Event()
first, later, behind = (engine.new_variable() for _ in range(3))

def begin(context):
    time.sleep(0.1)
    engine.push_sync(compute, writes=[later], pool=Pool.IO, name="later")
    engine.push_sync(print, reads=[later], writes=[behind], pool=Pool.IO, name="behind")
    begun.wait()

def compute(context):
    begun.set()
    ended.wait()

engine.push_sync(begin, writes=[first], pool=Pool.IO)
child = os.fork()
if not child:
    engine.wait_for_variable(first)
    for variable in (later, behind):
        try:
            engine.wait_for_variable(variable)
        except MxrunError as error:
            assert "another thread was computing it when the process forked" in str(error)
        else:
            raise AssertionError
    engine.push_sync(lambda context: print("child", flush=True), writes=[later, behind])
    engine.wait_for_variable(behind)
    engine.wait_for_all()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
ended.set()
os._exit(0)
"""


@pytest.mark.parametrize(
    "program",
    [
        _PROGRAM,
        _PROGRAM_WITH_THREADS,
        pytest.param(_PROGRAM_BESIDE_BUSY_THREADS, marks=pytest.mark.full),
        *(
            pytest.param(program, marks=pytest.mark.full)
            for program in (
                _PROGRAM_OF_ANOTHER_THREAD,
                _PROGRAM_BESIDE_AN_IMPORT,
                *(_PROGRAM_BEFORE_THE_FIRST_ARRAY.replace("DELAY", each) for each in ("0", "0.05")),
            )
        ),
    ],
)
def test_a_forked_process_goes_on_with_the_arrays_of_its_parent(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "child\n"), done.stderr
