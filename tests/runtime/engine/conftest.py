"""Engines that tests use, closed at their end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from engine_programs import guarded

from mxrun.runtime.engine.default import KINDS, new_engine
from mxrun.runtime.engine.interface import Engine
from mxrun.runtime.engine.threaded import ThreadedEngine


@pytest.fixture(params=list(KINDS))
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Engine of either kind, with the default workers."""
    before = threading.enumerate()
    made = new_engine(request.param)
    yield made
    guarded(lambda: _closed(made, before))


@pytest.fixture
def threaded() -> Iterator[ThreadedEngine]:
    """Threaded engine with two workers in each pool."""
    before = threading.enumerate()
    made = ThreadedEngine(2)
    yield made
    guarded(lambda: _closed(made, before))


def _closed(engine: Engine, before: list[threading.Thread]) -> None:
    """Close an engine, whose workers end; the process's engine may have others."""
    try:
        engine.close()
    finally:
        new = [each for each in threading.enumerate() if each not in before]
        assert not [each for each in new if each.name.startswith("mxrun ")]
