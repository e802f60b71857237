"""A run whose every call is timed, for `train --profile` and `--trace`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mxrun.executor.executor import Executor
from mxrun.runtime.profiler import Event

# Of every phase; a trace of a whole run would be gigabytes.
TRACED_STEPS = 50


class RunProfile:
    """Runs phases as the executor does, with a clock beside every call.

    Made before the first step; `run` takes the place of `Executor.run`, and nothing is allocated
    in it.
    """

    def __init__(self, executor: Executor) -> None:
        self._profiles = {
            phase: executor.profile(phase, TRACED_STEPS) for phase in executor.plan.phases
        }

    def run(self, phase: str) -> None:
        """Run one phase's tape once."""
        self._profiles[phase].run()

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """The operators of each phase that has run."""
        return {
            phase: [operator.to_json() for operator in profile.operators()]
            for phase, profile in self._profiles.items()
            if profile.steps
        }

    def events(self) -> Iterator[Event]:
        """Every call of the first steps of each phase."""
        for profile in self._profiles.values():
            yield from profile.events()
