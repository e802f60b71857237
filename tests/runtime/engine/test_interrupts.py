"""Ctrl-C at random instructions of the thread that pushes leaves the engine whole."""

from __future__ import annotations

import pytest
from commands import python_output

_SCRIPT = """
import os, random, signal, sys, threading, time
from mxrun.runtime.engine.default import engine as of_process
from mxrun.runtime.engine.naive import NaiveEngine

engine = of_process() if sys.argv[1] == "threaded" else of_process() and NaiveEngine()
left, right = engine.new_variable("left"), engine.new_variable("right")
counts = {"pushed": 0, "ran": 0, "deleted": 0}

def function(context):
    counts["ran"] += 1

def deleted():
    counts["deleted"] += 1

pushed = engine.new_operator(function, writes=[left])
here = engine.new_operator(function, reads=[left], writes=[right])
for number in range(60):
    started = threading.Event()

    def interrupt(started=started, delay=random.Random(number).random() * 0.003):
        started.wait()
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        started.set()
        while True:
            engine.push(pushed)
            engine.run_or_push(here)
            engine.delete_variable(engine.new_variable(), deleted)
    except KeyboardInterrupt:
        thread.join()
    engine.push_sync(function, writes=[left])
    engine.push_sync(function, writes=[right])
    engine.wait_for_all()
    for variable in (left, right):
        engine.wait_for_variable(variable)
engine.close()
print("whole", pushed.pending, here.pending)
"""


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_ctrl_c_leaves_the_engine_whole(kind: str) -> None:
    assert python_output("-c", _SCRIPT, kind) == "whole 0 0\n"


_BLOCKED = """
import os, signal, threading
from mxrun.runtime.engine.default import engine as of_process

engine, forever = of_process(), threading.Event()
variable = engine.new_variable()

def function(context):
    os.kill(os.getpid(), signal.SIGINT)
    forever.wait()

operator = engine.new_operator(function, writes=[variable])
try:
    ACTION
except KeyboardInterrupt:
    print("ended")
forever.set()
"""


@pytest.mark.parametrize(
    "action",
    [
        "engine.push(operator); engine.wait_for_variable(variable)",
        "engine.push(operator); engine.wait_for_all()",
        "engine.run_or_push(operator)",
    ],
)
def test_ctrl_c_ends_waits_and_functions(action: str) -> None:
    """Each would last for ever."""
    assert python_output("-c", _BLOCKED.replace("ACTION", action)) == "ended\n"


def test_other_handlers_of_ctrl_c_stay() -> None:
    script = """
import signal
from mxrun.runtime.engine.default import engine as of_process

own = lambda *_: None
signal.signal(signal.SIGINT, own)
of_process()
print(signal.getsignal(signal.SIGINT) is own)
"""
    assert python_output("-c", script) == "True\n"
