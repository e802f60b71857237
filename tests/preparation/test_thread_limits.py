"""Processes that may start no further thread, or have hardly any memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import HANG_S, mxrun

# A thread needs address space for its stack, which is made larger than what is left.
_LIMITED = """
import resource, sys, threading
from pathlib import Path
import mxrun.library
from mxrun.cli import main

def limit():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30),) * 2)
    threading.stack_size(3 << 30)
"""
_TRAIN = """
from mxrun.base import threads

start, count, last = threads.threading.Thread.start, 0, int(sys.argv[1])
def counted(thread):
    # The limit holds from the thread of this number on.
    global count
    count += 1
    if count == last:
        limit()
    start(thread)
threads.threading.Thread.start = counted
sys.argv = ["mxrun", "train", "digits_lenet", "train.epochs=2", "threads=1"]
sys.exit(main.run())
"""
_ENGINE = """
from mxrun.base.errors import MxrunError, UserError
from mxrun.runtime.engine.interface import Pool
from mxrun.runtime.engine.threaded import ThreadedEngine

limit()
engine, done = ThreadedEngine(), []
first, second, third = (engine.new_variable() for _ in range(3))
engine.push_sync(print, writes=[first], name="first", on_done=lambda failure: done.append("first"))
engine.push_sync(print, reads=[first], writes=[second], pool=Pool.IO, on_done=done.append)
engine.push_sync(print, writes=[third])
for variable in (first, second, third):
    try:
        engine.wait_for_variable(variable)
    except MxrunError as error:
        assert error.exit_code == 2, error
        assert "cannot be started" in str(error), error
    else:
        raise AssertionError
assert done[0] == "first" and done[1].job == "first", done
engine.wait_for_all()
fresh = engine.new_variable()
assert engine.run_or_push(engine.new_operator(lambda context: None, writes=[fresh]))
engine.close()
print("closed")
"""


def limited(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program with `limit` in a folder."""
    return subprocess.run(
        [sys.executable, "-c", _LIMITED + program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_every_waiter_gets_the_error_of_a_worker_that_cannot_start(tmp_path: Path) -> None:
    done = limited(_ENGINE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "closed\n"


@pytest.mark.parametrize("number", ["1", pytest.param("2", marks=pytest.mark.full)])
def test_training_ends_where_a_thread_cannot_start(number: str, tmp_path: Path) -> None:
    """Threads that watch signals, and that write checkpoints."""
    done = limited(_TRAIN, tmp_path, number)
    assert done.returncode == 2, done.stderr
    problem, got, hint = done.stderr.splitlines()[-3:]
    assert problem.startswith("the thread '"), done.stderr
    assert problem.endswith("cannot be started")
    assert got == "  got: can't start new thread"
    assert hint.startswith("  hint: allow the process more memory")
    # The run's lock is free.
    again = mxrun(
        "train", "digits_lenet", "train.epochs=2", "threads=1", "--overwrite", cwd=tmp_path
    )
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("kib", [60_000, 200_000, 400_000])
def test_too_little_memory_for_the_libraries_is_told_in_one_line(kib: int, tmp_path: Path) -> None:
    command = f"ulimit -v {kib} && exec {sys.executable} -m mxrun train digits_lenet --json"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "mxrun: out of memory: at least 416,000 KiB of address space are needed",
        "  hint: allow the process more (ulimit -v)",
    ]
    assert json.loads(done.stdout)["error"]["kind"] == "memory"
    assert not list(tmp_path.iterdir())
