"""Programs that Ctrl-C interrupts between any two instructions."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("seed", range(2))
def test_nothing_stays_pending_after_interrupts(seed: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(seed)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "True 201.0\n"), run.stderr
