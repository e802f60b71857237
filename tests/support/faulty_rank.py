"""Command of mxrun on several ranks, of which one has a fault at the beginning of a step.

python tests/support/faulty_rank.py FAULT RANK STEP train net.yaml ...
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

from mxrun.base.launcher import launched_ranks
from mxrun.cli.main import run
from mxrun.runtime.mpi import all_ranks
from mxrun.train.loop import TrainingLoop


def fail(loop: TrainingLoop) -> None:
    """Raise an exception."""
    raise ZeroDivisionError("planted")


def kill(loop: TrainingLoop) -> None:
    """End this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def stop(loop: TrainingLoop) -> None:
    """Stop this process until somebody continues it."""
    os.kill(os.getpid(), signal.SIGSTOP)


def hang(loop: TrainingLoop) -> None:
    """Never return."""
    while True:
        time.sleep(1)


def flip(loop: TrainingLoop) -> None:
    """Change one bit of a parameter."""
    weight = loop._replicas[0].executor.tensor("fc2_weight").mirror()
    weight.array.reshape(-1).view("u1")[5] ^= 1
    weight.store()


def interrupt(loop: TrainingLoop) -> None:
    """Ask this rank alone to stop."""
    os.kill(os.getpid(), signal.SIGTERM)


FAULTS: dict[str, Callable[[TrainingLoop], None]] = {
    each.__name__: each for each in (fail, kill, stop, hang, flip, interrupt)
}


def main() -> int:
    """Run the command."""
    fault, rank, at = FAULTS[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
    sys.argv[1:4] = []
    if launched_ranks() > rank == all_ranks().rank:
        take = TrainingLoop.step

        def step(loop: TrainingLoop, number: int, parts: int) -> int:
            if number == at:
                fault(loop)
            return take(loop, number, parts)

        TrainingLoop.step = step
    return run()


if __name__ == "__main__":
    sys.exit(main())
