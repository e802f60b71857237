"""Ctrl-C at any instruction of the thread that pushes leaves the engine whole."""

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
for number in range(30):
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


_AT_EVERY_INSTRUCTION = """
import gc, os, signal, sys, time
from mxrun.runtime.engine.default import KINDS, engine as of_process

of_process()
gc.disable()
gc.freeze()
kind, action = sys.argv[1:]

def compute(context):
    if action == "fail":
        raise ValueError("broken")

def start(context, on_complete):
    on_complete()

def interrupted_at(number):
    # Returns whether the operation had so many instructions.
    engine, left = KINDS[kind](), number
    engine.record(lambda event: None)
    variable = engine.new_variable()
    is_async = action == "complete"
    operator = engine.new_operator(
        start if is_async else compute, writes=[variable], is_async=is_async
    )

    def trace(frame, event, argument):
        nonlocal left
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left == 0 and event == "opcode":
            os.kill(os.getpid(), signal.SIGINT)
        return trace

    # What a weak reference's callback raises is lost: none runs meanwhile.
    gc.collect()
    try:
        sys.settrace(trace)
        engine.run_or_push(operator)
        sys.settrace(None)
        if left <= 0:
            # It came too late for the operation to raise it.
            time.sleep(60)
            raise AssertionError(f"instruction {number} is not interrupted")
    except KeyboardInterrupt:
        sys.settrace(None)
    engine.wait_for_variable(engine.new_variable())
    rewrite = engine.new_operator(lambda context: None, writes=[variable])
    engine.run_or_push(rewrite)
    engine.wait_for_variable(variable)
    engine.close()
    assert operator.pending == rewrite.pending == 0, number
    return left <= 0

count = 1
while interrupted_at(count):
    count += 1
assert count > 100
print("whole")
"""


@pytest.mark.parametrize("action", ["compute", "fail", "complete"])
@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_ctrl_c_at_every_instruction_leaves_the_engine_whole(kind: str, action: str) -> None:
    """Also where a failure is made, and where the time span of a function is recorded."""
    assert python_output("-c", _AT_EVERY_INSTRUCTION, kind, action) == "whole\n"


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
