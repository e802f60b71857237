"""Calls of an installation's mxrun, each in a fork of a process that has imported its modules.

Importing takes most of a call's time. Modules are imported and nothing of them is run: a fork is in
the state of a process that has just started.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from proof.installation import Installation

# A command that imports what most commands need.
_TYPICAL = ("check", "digits_lenet")
_IMPORTED = re.compile(r"import time:.*\| +(mxrun[\w.]*)")

_PROGRAM = """
import importlib, json, os, sys

names, program = json.loads(sys.stdin.readline())
for name in names:
    importlib.import_module(name)
from mxrun.__main__ import main

for line in sys.stdin:
    call = json.loads(line)
    pid = os.fork()
    if not pid:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()

del sys.path[0]
os.dup2(os.open(call["input"], os.O_RDONLY), 0)
os.dup2(os.open(call["output"], os.O_WRONLY), 1)
os.dup2(os.open(call["errors"], os.O_WRONLY), 2)
sys.stdin = open(0, closefd=False)
sys.stdout = open(1, "w", closefd=False)
sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
os.environ.update(call["environment"])
os.chdir(call["folder"])
sys.argv = [program, *call["words"]]
sys.exit(main())
"""


class ForkedCalls:
    """Process that runs calls one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def call(
        self, words: Sequence[str], folder: Path, text: str, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a call in a folder, with a text as its input."""
        with tempfile.TemporaryDirectory() as name:
            streams = {each: Path(name, each) for each in ("input", "output", "errors")}
            for stream in streams.values():
                stream.touch()
            streams["input"].write_text(text)
            request: dict[str, Any] = {each: str(path) for each, path in streams.items()}
            request |= {"words": words, "folder": str(folder), "environment": environment}
            code = int(self.answer(request))
            output, errors = (_text(streams[each]) for each in ("output", "errors"))
        return subprocess.CompletedProcess(words, code, output, errors)

    def answer(self, request: Any) -> str:
        """Write a line of JSON and return the line that the process answers.

        Raises SystemExit with what the process printed if it has ended.
        """
        self.tell(request)
        assert self._process.stdout
        assert self._process.stderr
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"no answer to {request}\n{self._process.stderr.read()[-4000:]}")
        return line

    def tell(self, request: Any) -> None:
        """Write a line of JSON."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()


def _text(stream: Path) -> str:
    return stream.read_bytes().decode(errors="surrogateescape")


@cache
def _modules(mxrun: Installation) -> list[str]:
    timed = mxrun.call(["-X", "importtime", str(mxrun.program), *_TYPICAL])
    return _IMPORTED.findall(timed.stderr)


@contextmanager
def forked_calls(mxrun: Installation) -> Iterator[ForkedCalls]:
    """Context manager of the process, which has imported what a typical command imports."""
    with mxrun.started(["-c", _PROGRAM]) as process:
        forked = ForkedCalls(process)
        forked.tell([_modules(mxrun), str(mxrun.program)])
        yield forked
        process.communicate()
