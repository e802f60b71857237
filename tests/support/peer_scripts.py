"""Scripts run in a peer's interpreter, for requests that its helper process does not support."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from commands import HANG_S
from oracles.peer import Peer

_FRAME = """
import json, sys
{script}
json.dump([answer(request) for request in json.load(sys.stdin)], sys.stdout)
"""


def run_in(peer: type[Peer], script: str, requests: Sequence[Any]) -> list[Any]:
    """Return the results of the script's `answer(request)` for all requests; both are JSON.

    Skips the test without the peer. One call takes many requests, as the interpreter starts slowly.
    """
    reason = peer.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return run_script(str(peer.interpreter()), script, requests)


def run_script(interpreter: str, script: str, requests: Sequence[Any]) -> list[Any]:
    """Return the results of the script's `answer(request)` in an interpreter; both are JSON."""
    done = subprocess.run(
        [interpreter, "-c", _FRAME.format(script=script)],
        input=json.dumps(list(requests)),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers
