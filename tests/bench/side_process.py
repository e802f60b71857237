"""Process of one library beside which others are measured: it takes turns with them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence


class SideProcess:
    """Helper process that answers one line to each line that it is sent."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
            text=True,
        )

    def ask(self, *words: object) -> str:
        """Send a line and return the answer; raises SystemExit if the process has ended."""
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> str:
        """Return the next line; raises SystemExit if the process has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} has ended")
        return line

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
