"""Profiled runs for `train --profile` and `--trace`: every call is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mxrun.executor.executor import Executor
from mxrun.io.loading.iterator import DataIterator
from mxrun.runtime.engine.interface import Engine
from mxrun.runtime.profiler import Event

# Traced steps of each phase; a trace of a complete run would take gigabytes.
TRACED_STEPS = 50
# Traced functions of engines, at least some steps.
_TRACED_FUNCTIONS = 5000


class EngineProfile:
    """Times of the functions that a run's engines run first: loading, steps, measuring, saving.

    Functions run side by side on the tracks of their workers; operators are not timed.
    """

    def __init__(self, engine: Engine, iterators: Iterable[DataIterator]) -> None:
        self._engine, self._iterators = engine, tuple(iterators)
        self._events: list[Event] = []
        self._record(self._add)

    def _record(self, sink: Callable[[Event], None] | None) -> None:
        self._engine.record(sink)
        for iterator in self._iterators:
            iterator.record(sink)

    def _add(self, event: Event) -> None:
        self._events.append(event)
        if len(self._events) >= _TRACED_FUNCTIONS:
            self._record(None)

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """Return no operators' times."""
        return {}

    def events(self) -> Iterator[Event]:
        """Yield the functions in the order in which they ended, and end the recording."""
        self._record(None)
        yield from self._events


class RunProfile:
    """Executor of phases that times every call, and the functions of the engines around them.

    Create it before the first step; `run` replaces `Executor.run` and allocates nothing.
    """

    def __init__(self, executor: Executor, functions: EngineProfile) -> None:
        self._functions = functions
        self._profiles = {
            phase: executor.profile(phase, TRACED_STEPS) for phase in executor.plan.phases
        }

    def run(self, phase: str) -> None:
        """Run one phase's program once."""
        self._profiles[phase].run()

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """Return the operators' times of each phase that has run."""
        return {
            phase: [operator.to_json() for operator in profile.operators()]
            for phase, profile in self._profiles.items()
            if profile.steps
        }

    def events(self) -> Iterator[Event]:
        """Yield the engines' functions, and all calls of the first steps of each phase."""
        yield from self._functions.events()
        for profile in self._profiles.values():
            yield from profile.events()
