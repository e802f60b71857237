"""Signal handlers of a program that interrupt an operation of the engine."""

from __future__ import annotations

import pytest
from commands import python_output

_PROGRAM = """
import os, signal, sys
from mxrun import MxrunError, UserError, nd
from mxrun.runtime.engine import pending, queues, threaded
from mxrun.runtime.engine.default import engine

files = {module.__file__ for module in (pending, queues, threaded)}
x, y = nd.ones((2,)), nd.ones((2,))
(x + 1).asnumpy()
refused = handled = broken = 0

def handle(*_):
    global refused, handled
    ACTION

signal.signal(signal.SIGUSR1, handle)

def interrupted_at(number):
    left = number

    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename in files:
            frame.f_trace_opcodes = True
            left -= event == "opcode"
            if left == 0 and event == "opcode":
                os.kill(os.getpid(), signal.SIGUSR1)
        return trace

    try:
        sys.settrace(trace)
        z = x + y
    finally:
        sys.settrace(None)
    assert z.asnumpy().tolist() == [2, 2]
    return left <= 0
"""

_USES_ARRAYS = """
number = 1
while interrupted_at(number):
    number += 1
nd.waitall()
print(refused > 20, handled > 20, refused + handled == number - 1)
"""


def test_a_handler_that_uses_arrays_is_refused_within_an_operation() -> None:
    """Elsewhere it may use them, and the interrupted operation goes on."""
    action = """try:
        assert (y * 3).asnumpy().tolist() == [3, 3]
        handled += 1
    except UserError as error:
        assert "a signal handler uses arrays" in str(error)
        refused += 1"""
    program = _PROGRAM.replace("ACTION", action) + _USES_ARRAYS
    assert python_output("-c", program) == "True True True\n"


_RAISES = """
for number in range(FIRST, FIRST + 60, 4):
    try:
        interrupted_at(number)
    except TimeoutError:
        pass
    except MxrunError as error:
        assert "an exception has ended one of its operations halfway" in str(error)
        assert "TimeoutError: too late" in str(error)
        broken += 1
try:
    nd.waitall()
except UserError as error:
    broken += 1
print("ended", broken > 0)
"""


@pytest.mark.full
@pytest.mark.parametrize("first", ["1", "40"])
def test_a_handler_that_raises_leaves_no_wait_that_never_ends(first: str) -> None:
    program = _PROGRAM.replace("ACTION", "raise TimeoutError('too late')")
    shown = python_output("-c", program + _RAISES.replace("FIRST", first))
    assert shown.startswith("ended ")
