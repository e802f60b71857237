"""Time for which a busy thread may hold the interpreter's lock during a loop of steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mxrun.commands.train import train
from mxrun.config.bundled import find_config
from mxrun.executor.switch_interval import INTERVAL_S, ShortSwitchInterval
from mxrun.options.train import TrainOptions
from mxrun.train.observer import EpochDone
from mxrun.train.replay import NullObserver


@pytest.fixture(autouse=True)
def interval() -> Iterator[float]:
    """Restore Python's switch interval after a test."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        yield 0.005
    finally:
        sys.setswitchinterval(before)


def test_the_last_loop_to_leave_restores_the_interval(interval: float) -> None:
    short_interval = ShortSwitchInterval()
    with short_interval:
        assert sys.getswitchinterval() == pytest.approx(INTERVAL_S)
        with short_interval:
            pass
        assert sys.getswitchinterval() == pytest.approx(INTERVAL_S)
    assert sys.getswitchinterval() == pytest.approx(interval)


def test_an_interval_that_is_shorter_stays() -> None:
    sys.setswitchinterval(2e-5)
    with ShortSwitchInterval():
        assert sys.getswitchinterval() == pytest.approx(2e-5)
    assert sys.getswitchinterval() == pytest.approx(2e-5)


class Watcher(NullObserver):
    """Observer that records the interval at the end of each epoch, and fails after the second."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def epoch_done(self, done: EpochDone) -> None:
        self.seen.append(sys.getswitchinterval())
        if done.epoch == 2:
            raise KeyboardInterrupt


def test_a_run_has_it_short_and_leaves_it_as_it_was(interval: float, empty_folder: Path) -> None:
    config, watcher = find_config("digits_lenet"), Watcher()
    options = TrainOptions(config=str(config), overrides=("train.epochs=3",))
    with pytest.raises(KeyboardInterrupt):
        train(options, watcher)
    assert watcher.seen == pytest.approx([INTERVAL_S, INTERVAL_S])
    assert sys.getswitchinterval() == pytest.approx(interval)
