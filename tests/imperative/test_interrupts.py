"""Programs that Ctrl-C interrupts between any two instructions."""

from __future__ import annotations

import subprocess
import sys

import pytest
from commands import python_output

_PROGRAM = """
import _thread, random, sys, threading, time
from mxrun import autograd, nd
from mxrun.runtime.engine.default import engine

chance = random.Random(int(sys.argv[1]))
caught = 0


def interrupt_soon(seconds):
    time.sleep(seconds)
    _thread.interrupt_main()


engine()
weight, large = nd.ones((10,)), nd.ones((200, 200))
weight.attach_grad()
for _ in range(150):
    try:
        _thread.start_new_thread(interrupt_soon, (chance.uniform(0.0002, 0.004),))
        # A finaliser of Python's may swallow one.
        end = time.monotonic() + 20
        while time.monotonic() < end:
            small, sums = weight * 1, large + large
            with autograd.record():
                loss = weight * weight
            loss.backward()
            small.asnumpy()
    except KeyboardInterrupt:
        caught += 1
    assert not autograd.is_recording()
nd.waitall()
assert (sums.asnumpy() == 2).all() and (small.asnumpy() == 1).all()
print(caught > 100, (nd.dot(large, large) + 1).asnumpy()[0, 0])
"""


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_nothing_stays_pending_after_interrupts(seed: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(seed)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "True 201.0\n"), run.stderr


_WHILE_MEMORY_IS_TAKEN = """
import gc, os, signal, sys
from mxrun import nd
from mxrun.base.context import cpu
from mxrun.device.storage import storage_pools
from mxrun.imperative.arrays import chunk
from mxrun.runtime import storage

x, pool = nd.ones((10,)), storage_pools().of(cpu())
x + x
gc.collect()
gc.freeze()

def interrupted_at(number):
    # Returns whether allocation had so many instructions.
    left = number

    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename in (chunk.__file__, storage.__file__):
            frame.f_trace_opcodes = True
            left -= event == "opcode"
            if left == 0 and event == "opcode":
                os.kill(os.getpid(), signal.SIGINT)
        return trace

    try:
        sys.settrace(trace)
        y = x + x
        sys.settrace(None)
        while left <= 0:
            # It comes soon.
            pass
    except KeyboardInterrupt:
        sys.settrace(None)
    return left <= 0

count, before = 1, pool.statistics().bytes_in_use
while interrupted_at(count):
    gc.collect()
    assert pool.statistics().bytes_in_use == before, count
    count += 1
assert count > 30
print("whole")
"""


@pytest.mark.full
def test_ctrl_c_while_memory_is_taken_loses_none() -> None:
    assert python_output("-c", _WHILE_MEMORY_IS_TAKEN) == "whole\n"


_IN_PLACE = """
import _thread, random, time
from mxrun import nd
from mxrun.runtime.engine.default import engine

def interrupt_soon(seconds):
    time.sleep(seconds)
    _thread.interrupt_main()

engine()
chance, caught = random.Random(1), 0
weight, step = nd.ones((50, 50)), nd.ones((50, 50))
for _ in range(60):
    try:
        _thread.start_new_thread(interrupt_soon, (chance.uniform(0.0002, 0.004),))
        end = time.monotonic() + 20
        while time.monotonic() < end:
            weight += step
            weight[0] = 2
            step[:] = 1
    except KeyboardInterrupt:
        caught += 1
    values = weight.asnumpy()
    assert (values[1:] == values[1, 0]).all() and (step.asnumpy() == 1).all()
print(caught > 40)
"""


@pytest.mark.full
def test_ctrl_c_leaves_an_array_whole_that_changes_in_place() -> None:
    assert python_output("-c", _IN_PLACE) == "True\n"
