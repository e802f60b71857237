"""Chains of processes that train one run, each killed at a moment of its own."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interrupted_runs import CONFIG, INTERVAL, NEVER, Started, go_on, resumed_from

FINISHED = "is already finished"
# File operations of a save and of what it removes.
OPERATIONS = 24


@dataclass(frozen=True)
class Moment:
    """Where a run is killed: so long after a step (at step 0, after the command has begun), or
    before a file operation after a step.
    """

    step: int
    seconds: float = 0.0
    operation: int = 0


@dataclass(frozen=True)
class Killed:
    """After which step a process went on, if it came to say so, and the last that it took."""

    resumed: int | None
    taken: int


def kill(folder: Path, moment: Moment, *arguments: str, config: str = CONFIG) -> Killed:
    """Start, or go on, and kill."""
    doom = f"{moment.step}:{moment.operation}" if moment.operation else NEVER
    started = Started(folder, *arguments, moment=doom, config=config)
    if not moment.operation:
        started.wait_for(moment.step, moment.seconds)
        started.process.kill()
    code, _, errors = started.end()
    # A late moment may find the run at its end.
    assert code in (-signal.SIGKILL, 0), errors
    return Killed(resumed_from(errors), started.step)


def chain(
    folder: Path, moments: Sequence[Moment], *arguments: str, config: str = CONFIG
) -> list[Killed]:
    """A run killed at each of the moments, and then left to end; every restart resumes."""
    found = [
        kill(folder, moment, *arguments, *(("--resume",) if number else ()), config=config)
        for number, moment in enumerate(moments)
    ]
    gone = go_on(folder, *arguments, config=config)
    if FINISHED not in gone.errors:
        assert resumed_from(gone.errors) == (gone.summary["resumed_from"] or 0)
    return [*found, Killed(resumed_from(gone.errors), gone.summary["steps"])]


def assert_little_is_redone(found: Sequence[Killed]) -> None:
    """No process takes more than an interval of steps that were taken before."""
    reached = 0
    for process in found:
        if process.resumed is not None:
            assert 0 <= reached - process.resumed <= INTERVAL, found
        reached = max(reached, process.taken)
