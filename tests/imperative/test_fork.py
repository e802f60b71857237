"""Arrays in forked processes."""

from __future__ import annotations

import subprocess
import sys

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


def test_a_forked_process_goes_on_with_the_arrays_of_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "child\n"), done.stderr
