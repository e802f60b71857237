"""Run mxrun's command line, publish its progress, and end it at a given moment.

Arguments: `doomed_run.py PUBLISHED STEP:EVENT ARGUMENTS...`. The number of the last finished step
is always in the file PUBLISHED (int64; 0 at the start of the command). After STEP steps, the
process gets a signal at EVENT: SIGKILL before that file operation in the folder `runs`, counted
from 1, or SIGTERM at `evaluate`, the first batch of an evaluation; 0 is no event. `OPERATION+STEPS`
counts the operations on the checkpoint of that step, and holds the thread that makes it until so
many further steps are taken.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any

OPERATIONS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")


class Published:
    """Number in a memory-mapped file, which survives a kill of the process."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap(file.fileno(), 8)

    @property
    def value(self) -> int:
        return int(struct.unpack("q", self._memory[:])[0])

    @value.setter
    def value(self, number: int) -> None:
        self._memory[:] = struct.pack("q", number)


def doomed(
    published: Published, step: int, operation: int, later: int
) -> Callable[[str, Any], None]:
    """An audit hook that ends the process, `later` steps after step `step` or thereafter."""
    left = operation

    def hook(event: str, arguments: Any) -> None:
        nonlocal left
        # shutil removes files of a folder by relative names.
        relative = event in ("os.remove", "os.rmdir") and arguments[1] != -1
        if event not in OPERATIONS or not (relative or str(arguments[0]).startswith("runs")):
            return
        if later and f"checkpoint-{step}" not in str(arguments[0]):
            return
        if published.value >= step:
            left -= 1
            if left == 0:
                while published.value < step + later:
                    time.sleep(0.0002)
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def publish_steps(published: Published) -> None:
    """Publish every step once it is finished."""
    from mxrun.train.loop import TrainingLoop

    take = TrainingLoop.step

    def published_step(self: TrainingLoop, step: int, batches: int) -> int:
        valid = take(self, step, batches)
        published.value = step
        return valid

    TrainingLoop.step = published_step  # type: ignore[method-assign]


def stop_in_evaluation(published: Published, step: int) -> None:
    """Ask the process to stop at an evaluation's first batch."""
    from mxrun.executor.executor import Executor
    from mxrun.graph.phases import EVALUATE

    execute = Executor.run

    def run(self: Executor, phase: str) -> None:
        if phase == EVALUATE and published.value >= step:
            os.kill(os.getpid(), signal.SIGTERM)
        execute(self, phase)

    Executor.run = run  # type: ignore[method-assign]


if __name__ == "__main__":
    place, moment, *rest = sys.argv[1:]
    reached = Published(Path(place))
    first, _, at = moment.partition(":")
    publish_steps(reached)
    if at == "evaluate":
        stop_in_evaluation(reached, int(first))
    elif at != "0":
        operation, _, steps = at.partition("+")
        sys.addaudithook(doomed(reached, int(first), int(operation), int(steps or 0)))

    from mxrun.__main__ import main

    sys.argv = ["mxrun", *rest]
    reached.value = 0
    sys.exit(main())
