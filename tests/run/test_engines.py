"""Runs on the threaded and on the naive engine, and checkpoints that are written beside steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import HANG_S, digests
from interrupted_runs import CONFIG, EPOCH, INTERVAL, go_on, left
from killed_runs import Moment, assert_little_is_redone, chain, kill
from training import prepare

from mxrun.base.errors import Diagnostic, Stopped, UserError
from mxrun.commands import train as command
from mxrun.options.train import TrainOptions
from mxrun.preparation.planning import load, parse_config
from mxrun.run.run import Run
from mxrun.run.save_copy import SaveCopy
from mxrun.train import checkpoint_manager
from mxrun.train.background import BackgroundWriter, StateCopy
from mxrun.train.checkpoint import MEASURED_FILE, RunState
from mxrun.train.checkpoint_manager import saved_steps
from mxrun.train.interruption import Interruption
from mxrun.train.loop import TrainingLoop
from mxrun.train.progress import Progress
from mxrun.train.replay import NullObserver
from mxrun.train.saver import RunSaver

RUN = Path("runs/killed")


@pytest.mark.parametrize("loaded", [(), ("data.workers=4", "data.prefetch=3")], ids=["one", "four"])
def test_E17_naive_and_threaded_engines_give_the_same_bytes(
    loaded: tuple[str, ...], tmp_path: Path
) -> None:
    """Checkpoints with their manifests, and metrics, of a run with loaders and many saves."""
    go_on(tmp_path / "threaded", "engine=threaded", *loaded)
    go_on(tmp_path / "naive", "engine=naive")
    found = left(tmp_path / "threaded")
    assert any(name.startswith("checkpoint-") for name in found)
    assert found == left(tmp_path / "naive")


def test_E17_a_run_goes_on_on_the_other_engine(
    uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    kill(tmp_path, Moment(2 * INTERVAL), "engine=naive")
    go_on(tmp_path, "engine=threaded")
    assert left(tmp_path) == uninterrupted


class Steps:
    """Steps that the loop takes, which another thread may wait for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._taken, self._changed = 0, threading.Condition()
        take = TrainingLoop.step

        def step(loop: TrainingLoop, number: int, parts: int) -> int:
            valid = take(loop, number, parts)
            with self._changed:
                self._taken = number
                self._changed.notify_all()
            return valid

        monkeypatch.setattr(TrainingLoop, "step", step)

    def wait_for(self, step: int) -> None:
        """Wait until a step is taken."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._taken >= step, HANG_S)


def before_saves(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Call `act` with the step of each checkpoint before it is written, on the thread that does."""
    save = checkpoint_manager.save_checkpoint

    def saved(folder: Path, state: RunState, groups: Any) -> Path:
        act(state.progress.step)
        return save(folder, state, groups)

    monkeypatch.setattr(checkpoint_manager, "save_checkpoint", saved)


def train(*overrides: str, **options: Any) -> None:
    Path("net.yaml").write_text(CONFIG)
    chosen = TrainOptions(config="net.yaml", overrides=overrides, **options)
    command.train(chosen, NullObserver())


def files() -> dict[str, str]:
    found = digests(RUN)
    found.pop("config.yaml")
    return found


def test_F5_checkpoints_are_those_of_their_steps_however_late_they_are_written(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is written only once the last step before the next one is taken."""
    steps = Steps(monkeypatch)
    before_saves(monkeypatch, lambda step: steps.wait_for(min(step + INTERVAL - 1, EPOCH)))
    train("train.epochs=1")
    assert files() == whole(empty_folder)


def whole(folder: Path) -> dict[str, str]:
    """Files of a run of one epoch whose checkpoints are written between steps."""
    go_on(folder / "whole", "train.epochs=1", "engine=naive")
    return left(folder / "whole")


@pytest.mark.parametrize("operation", [1, 4, 7])
def test_F5_killed_in_a_write_that_later_steps_have_overtaken(
    operation: int, uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    """The previous checkpoint is there, and records of later steps do not count."""
    moments = [Moment(step, operation=operation, later=3) for step in (2 * INTERVAL, 4 * INTERVAL)]
    found = chain(tmp_path, moments)
    assert_little_is_redone(found)
    for moment, process in zip(moments, found, strict=False):
        assert moment.step + moment.later <= process.taken <= moment.step + INTERVAL
    # After the first epoch a checkpoint is written in any case, as it is the best so far.
    assert [process.resumed for process in found[1:]] == [INTERVAL, EPOCH]
    assert left(tmp_path) == uninterrupted


@pytest.mark.parametrize("engine", ["threaded", "naive"])
def test_F5_a_write_that_failed_ends_the_run_after_the_step(
    engine: str, uninterrupted: dict[str, str], empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before the next save, and what was saved before is still there."""
    failing, begun = 2 * INTERVAL, threading.Event()
    taken: list[int] = []
    writers: list[BackgroundWriter] = []
    take, make = TrainingLoop.step, Run.background_writer

    def step(loop: TrainingLoop, number: int, parts: int) -> int:
        taken.append(number)
        if number == failing + 2:
            begun.set()
            deadline = time.monotonic() + HANG_S
            while not writers[0].has_failed:
                assert time.monotonic() < deadline
                time.sleep(0.001)
        return take(loop, number, parts)

    def writer(run: Run, loop: TrainingLoop) -> BackgroundWriter | None:
        found = make(run, loop)
        assert found is not None
        writers.append(found)
        return found

    def fail(step: int) -> None:
        if step == failing:
            assert engine == "naive" or begun.wait(HANG_S)
            raise UserError(Diagnostic("cannot write checkpoint-14: no space left on device"))

    with monkeypatch.context() as patch:
        before_saves(patch, fail)
        patch.setattr(TrainingLoop, "step", step)
        patch.setattr(Run, "background_writer", writer)
        with pytest.raises(UserError, match=r"^cannot write checkpoint-14: no space"):
            train(f"engine={engine}")
    assert taken[-1] == (failing + 2 if engine == "threaded" else failing + 1)
    assert saved_steps(RUN) == [INTERVAL]
    train(resume=True)
    assert files() == uninterrupted


def test_F5_a_stop_waits_for_the_write(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write asks for the stop after the next step, and ends once the run has begun to stop."""
    interruption, asked, stopping = Interruption(), threading.Event(), threading.Event()
    take, end = TrainingLoop.step, RunSaver.stop

    def write(step: int) -> None:
        if step == INTERVAL:
            interruption.request("a test")
            asked.set()
            assert stopping.wait(HANG_S)

    def step(loop: TrainingLoop, number: int, parts: int) -> int:
        assert number <= INTERVAL or asked.wait(HANG_S)
        return take(loop, number, parts)

    def stop(saver: RunSaver, progress: Progress) -> None:
        stopping.set()
        end(saver, progress)

    before_saves(monkeypatch, write)
    monkeypatch.setattr(TrainingLoop, "step", step)
    monkeypatch.setattr(RunSaver, "stop", stop)
    Path("net.yaml").write_text(CONFIG)
    request = command.TrainRequest(TrainOptions(config="net.yaml"), interruption=interruption)
    with pytest.raises(Stopped):
        command.train_config(parse_config("net.yaml"), NullObserver(), request)
    assert saved_steps(RUN) == [INTERVAL, INTERVAL + 1]


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "net.yaml").write_text(CONFIG)
    return tmp_path / "net.yaml"


def test_the_copy_has_the_planned_bytes(config: Path) -> None:
    run = prepare(load(config))
    loop = run.loop(NullObserver())
    _, groups = run.snapshot(loop.progress, True, loop)
    copy, planned = StateCopy(groups), SaveCopy.of(run.plan, 1)
    assert copy.nbytes == planned.nbytes > 0
    assert copy.take(groups)
    for file, arrays in groups.items():
        for name, array in arrays.items():
            assert copy.groups[file][name].tobytes() == array.tobytes()
    name = next(iter(groups["parameters.safetensors"]))
    groups["parameters.safetensors"][name].reshape(-1)[-1] = np.nan
    assert not copy.take(groups)
    groups["parameters.safetensors"][name].reshape(-1)[-1] = 0
    groups[MEASURED_FILE]["softmax"][0] = np.inf
    assert copy.take(groups)
    run.close()


def test_without_room_for_the_copy_steps_wait(config: Path) -> None:
    run = prepare(load(config))
    assert run.background_writer(run.loop(NullObserver())) is not None
    planned, copy = run.plan.planned_bytes, SaveCopy.of(run.plan, 1).nbytes
    run.close()
    for nbytes, has_room in ((planned + copy - 1, False), (planned + copy, True)):
        run = prepare(load(config, [f"memory.budget={nbytes}"]))
        assert (run.background_writer(run.loop(NullObserver())) is not None) == has_room
        run.close()
