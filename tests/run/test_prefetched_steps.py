"""Row D3: batches are made while steps run, in a training whose times are told by a clock of its
own, so that a busy machine changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import HANG_S
from training import prepare

from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs, LazyField
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.dataset.registry import register as register_dataset
from mxrun.io.loading.statistics import limiting_stage
from mxrun.operator.simple import simple_operator
from mxrun.preparation.planning import load
from mxrun.train.replay import NullCheckpointing, NullObserver

RECORDS, AHEAD, STEP_MS = 8, 2, 30
CONFIG = f"""\
name: net
threads: 1
network:
  inputs: {{data: [2], label: []}}
  layers:
    - test_timed_step: {{}}
    - FullyConnected: {{num_hidden: 2}}
    - SoftmaxOutput: {{label: label}}
data:
  batch_size: 1
  workers: 1
  prefetch: {AHEAD}
  train: {{dataset: test_timed_records}}
train: {{epochs: 1, optimizer: sgd}}
"""


class Clock:
    """Clock in ms that stands still, but while steps run and while they wait for a record.

    Before it goes on, the loader has begun all that it can begin. read: records that were read;
    used: those of which the step has begun.
    """

    def __init__(self, read_ms: int) -> None:
        self.now = self.read = self.used = 0
        self._read_ms = read_ms
        self._due: int | None = None
        self._changed = threading.Condition()

    def read_record(self) -> None:
        """Take the time of a record, on the loader's thread."""
        with self._changed:
            self._due = due = self.now + self._read_ms
            self._changed.notify_all()
            self._wait(lambda: self.now >= due)
            self._due = None
            self.read += 1
            self._changed.notify_all()

    def run_step(self) -> None:
        """Take the time of a step, on its thread."""
        with self._changed:
            self.used += 1
            end = self.now + STEP_MS
            while self._next_due() <= end:
                self._advance()
            self.now = end
            self._changed.notify_all()

    def wait_for_record(self) -> None:
        """Let the time pass that the record of the next step still takes."""
        with self._changed:
            while self.read <= self.used:
                self._next_due()
                self._advance()

    def _advance(self) -> None:
        """Go on until the record that is being read is complete."""
        assert self._due is not None
        read, self.now = self.read, self._due
        self._changed.notify_all()
        self._wait(lambda: self.read > read)

    def _next_due(self) -> float:
        """Return the end of the record that is being read; infinity if there is no memory."""
        limit = min(RECORDS, self.used + AHEAD)
        self._wait(lambda: self._due is not None or self.read == limit)
        return np.inf if self._due is None else self._due

    def _wait(self, condition: Callable[[], bool]) -> None:
        assert self._changed.wait_for(condition, HANG_S)


@pytest.fixture
def timed(
    separate_registry: None, monkeypatch: pytest.MonkeyPatch, empty_folder: Path
) -> Callable[[int], Clock]:
    """Return a function that trains on records of given times and returns the clock at the end."""
    monkeypatch.setattr(DATASETS, "_entries", dict(DATASETS._entries))
    Path("net.yaml").write_text(CONFIG)
    clocks: list[Clock] = []

    @register_dataset("test_timed_records", Parameters, ("train",), lazy=True)
    def records(options: Parameters, split: str, inputs: Inputs) -> Dataset:
        """Records that take time."""

        def read(index: int) -> np.ndarray:
            clocks[-1].read_record()
            return np.full(2, index, np.float32)

        labels = {"label": Field(np.zeros(RECORDS, np.int32))}
        lazy = {"data": LazyField(read, RECORDS, (2,), "float32")}
        return Dataset("test_timed_records", labels, split="train", lazy=lazy)

    @simple_operator("test_timed_step")
    def step(env, data):
        """output = data, after the time of a step."""
        clocks[-1].run_step()
        return data

    def train(read_ms: int) -> Clock:
        clocks.append(Clock(read_ms))
        run = prepare(load("net.yaml"))
        iterator = run.iterators["train"]
        iterator.watch_waits(lambda seconds, record: clocks[-1].wait_for_record())
        try:
            result = run.loop(NullObserver()).run(NullCheckpointing(), lambda: False)
            assert result.progress.step == RECORDS
            assert limiting_stage(iterator.work()) == "read"
            assert iterator.work()["read"].records == RECORDS
            assert iterator.waited_seconds == result.waited_seconds > 0
        finally:
            run.close()
        return clocks[-1]

    return train


def test_D3_with_a_loader_of_20_ms_a_step_of_30_ms_waits_for_the_first_record_alone(timed):
    assert timed(20).now == 20 + RECORDS * STEP_MS


def test_D3_with_a_loader_of_40_ms_steps_take_40_ms(timed):
    assert timed(40).now == RECORDS * 40 + STEP_MS
