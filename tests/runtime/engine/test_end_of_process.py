"""The process's engine at the end of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from commands import HANG_S


def ended(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script that has the process's engine as `engine`."""
    begin = "import os, sys, time\nfrom mxrun.runtime.engine.default import engine as of_process\n"
    return subprocess.run(
        [sys.executable, "-c", f"{begin}engine = of_process()\n{script}"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_pending_functions_finish() -> None:
    done = ended(
        """
variable = engine.new_variable()
for number in range(3):
    engine.push_sync(
        lambda context, n=number: (time.sleep(0.1), print(n, flush=True)), updates=[variable]
    )
def start(context, on_complete):
    import threading
    threading.Timer(0.1, lambda: (print("completed", flush=True), on_complete())).start()
engine.push_async(start, updates=[variable])
print("end of the script", flush=True)
"""
    )
    assert done.stdout.splitlines() == ["end of the script", "0", "1", "2", "completed"]
    assert (done.returncode, done.stderr) == (0, "")


def test_failures_that_nothing_has_waited_for_are_printed() -> None:
    done = ended(
        """
def fail(context):
    raise ValueError("broken")
seen, unseen = engine.new_variable(), engine.new_variable()
engine.push_sync(fail, writes=[seen], name="seen")
engine.push_sync(fail, writes=[unseen], name="unseen")
engine.push_sync(print, reads=[unseen], name="dependant")
try:
    engine.wait_for_variable(seen)
except Exception as error:
    print(error)
"""
    )
    assert done.stdout == "seen failed: broken\n"
    assert done.stderr == "mxrun: unseen failed: broken, and nothing waited for it\n"
    assert done.returncode == 0


def test_the_engine_of_a_forked_process_has_workers_of_its_own() -> None:
    done = ended(
        """
engine.push_sync(lambda context: print("parent", flush=True))
engine.wait_for_all()
child = os.fork()
name = "parent again" if child else "child"
assert of_process() is engine
engine.push_sync(lambda context: print(name, flush=True))
if child:
    engine.wait_for_all()
    assert os.waitpid(child, 0)[1] == 0
"""
    )
    assert sorted(done.stdout.splitlines()) == ["child", "parent", "parent again"]
    assert (done.returncode, done.stderr) == (0, "")


def test_a_daemon_thread_that_never_stops_pushing_does_not_keep_the_process() -> None:
    done = ended(
        """
import threading
def push():
    variable = engine.new_variable()
    while True:
        engine.push_sync(lambda context: None, updates=[variable])
threading.Thread(target=push, daemon=True).start()
time.sleep(0.1)
engine.push_sync(lambda context: print("finished", flush=True))
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "finished\n", "")


def test_functions_pushed_after_the_engine_has_ended_run() -> None:
    """atexit calls what was registered first last."""
    done = ended_after(
        """
def later():
    engine = of_process()
    variable = engine.new_variable()
    engine.push_sync(lambda context: print("first", flush=True), updates=[variable])
    def start(context, on_complete):
        callbacks.put(lambda: (print("second", flush=True), on_complete()))
    engine.push_async(start, updates=[variable])
    engine.push_sync(lambda context: print("third", flush=True), updates=[variable])
    def fail(context):
        raise ValueError("broken")
    failed = engine.new_variable()
    engine.push_sync(fail, reads=[variable], writes=[failed], name="failing")
    engine.wait_for_variable(variable)
    try:
        engine.wait_for_variable(failed)
    except Exception as error:
        print(error)
""",
        """
import queue
callbacks = queue.Queue()
threading.Thread(target=lambda: callbacks.get()(), daemon=True).start()
of_process().push_sync(lambda context: print("zeroth", flush=True))
""",
    )
    lines = ["zeroth", "first", "second", "third", "failing failed: broken"]
    assert done.stdout.splitlines() == lines
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.full
def test_arrays_compute_after_the_engine_has_ended() -> None:
    done = ended_after(
        """
def later():
    from mxrun import autograd
    y = nd.dot(large, large) + x.sum()
    x.attach_grad()
    with autograd.record():
        z = (x * x).sum()
    z.backward()
    print(y.asnumpy()[0, 0], x.grad.asnumpy().tolist())
""",
        "from mxrun import nd\nx, large = nd.array([1, 2]), nd.ones((300, 300))",
    )
    assert done.stdout == "303.0 [2.0, 4.0]\n"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.full
def test_a_daemon_thread_computes_while_the_process_ends() -> None:
    """It never returns, so that its arrays are in use to the end; they are no leaks."""
    done = ended_after(
        """
def later():
    begun.set()
    assert done.wait(60)
    print(*results)
""",
        """
from mxrun import nd
x, begun, done, results = nd.array([1, 2]), threading.Event(), threading.Event(), []
forever = threading.Event()
def compute():
    assert begun.wait(60)
    large = nd.ones((300, 300))
    results.append((nd.dot(large, large)[0, 0] + x.sum()).asscalar())
    done.set()
    forever.wait()
threading.Thread(target=compute, daemon=True).start()
""",
    )
    assert done.stdout == "303.0\n"
    assert (done.returncode, done.stderr) == (0, "")


def ended_after(function: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script at whose very end, after that of the engine, a function `later` is called."""
    begin = (
        f"import atexit, threading\n{function}\natexit.register(later)\n"
        "from mxrun.runtime.engine.default import engine as of_process\nof_process()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", begin + script],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
