"""Chains of processes that train one run, each killed at another moment."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interrupted_runs import CONFIG, INTERVAL, NEVER, Started, go_on, resumed_from

FINISHED = "is already finished"
# File operations of a save and its removals.
OPERATIONS = 25


@dataclass(frozen=True)
class Moment:
    """Moment of a kill: a delay after a step (0: after the command has begun), or a file operation
    after that step, held until `later` further steps are taken.
    """

    step: int
    seconds: float = 0.0
    operation: int = 0
    later: int = 0


@dataclass(frozen=True)
class Killed:
    """Step after which a process resumed, if it reported one, and the last step that it took."""

    resumed: int | None
    taken: int


def kill(folder: Path, moment: Moment, *arguments: str, config: str = CONFIG) -> Killed:
    """Start or resume a run, and kill it."""
    doom = f"{moment.step}:{moment.operation}+{moment.later}" if moment.operation else NEVER
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
    """Run a chain: killed at each of the moments, then run to the end; every restart resumes."""
    found = [
        kill(folder, moment, *arguments, *(("--resume",) if number else ()), config=config)
        for number, moment in enumerate(moments)
    ]
    gone = go_on(folder, *arguments, config=config)
    if FINISHED not in gone.errors:
        assert resumed_from(gone.errors) == (gone.summary["resumed_from"] or 0)
    return [*found, Killed(resumed_from(gone.errors), gone.summary["steps"])]


def assert_little_is_redone(found: Sequence[Killed]) -> None:
    """Assert that no process repeats more than two checkpoint intervals of steps.

    One checkpoint may not be complete while the next steps run; the next one waits for it.
    """
    reached = 0
    for process in found:
        if process.resumed is not None:
            assert 0 <= reached - process.resumed <= 2 * INTERVAL, found
        reached = max(reached, process.taken)
